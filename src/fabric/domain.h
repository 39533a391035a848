// The wire: the third of braid's seams. A domain is one endpoint on one network interface, and
// everything above it is the same code on libfabric and on the simulated network.
//
// The contract, which tests/fabric/contract_test.cpp holds every domain to:
// - Nothing is ordered: not writes, nor messages, nor completions, nor immediates of two writes.
// - A write's immediate arrives at the target after all its bytes, of all segments, exactly once,
//   and only if the write did not fail there.
// - A write that has completed well is visible in the target's memory. A message that has completed
//   well lies in the target's buffer.
// - A posting that has completed, well or not, no longer reads its source. A posting that never
//   completes may go on reading it: only the caller's deadlines end that wait.
// - A failed posting may have landed in part or whole, and part of it may still land: see
//   Traits::removal_fences.
//
// Threads: one at a time. No function calls back or blocks. The domain's own memory (queues) gets
// its limit when the domain opens. Memory that callers register stays theirs; they keep it until
// the region is removed.
// Source: RDMA Point-to-Point Communication for LLM Systems, 3.2 ("Domain") and 3.5.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"

namespace braid::fabric {

using Bytes = std::span<const std::byte>;
using MutableBytes = std::span<std::byte>;

/// Memory that peers may write, as this wire names it: the address of its first byte, and the key.
struct RemoteRange {
  uint64_t base = 0;
  uint64_t key = 0;
  bool operator==(const RemoteRange&) const = default;
};

/// Local regions are sources of writes and buffers of messages. Remote ones are targets of writes.
enum class Access : uint8_t { kLocal, kRemoteWrite };

/// Whether a removed region, or a closed door, may still be written.
enum class Drain : uint8_t {
  kOver,
  kEnding,  ///< the domain's own copies into it, or writes that have come already, have yet to end
  kHeldByPeer,  ///< a process has mapped it, and has neither unmapped it nor ended
};

/// Why a peer takes no more of what was posted to it, as far as is known.
enum class Absence : uint8_t {
  kSilent,  ///< it may resume, and then read sources
  kShut,    ///< it has shut the door that we wrote to: nobody reads the sources of those writes
  kEnded,   ///< its process has ended
};

struct Traits {
  std::string provider;
  /// After `remove_region` no byte of any write lands in the region, not even of a write that was
  /// under way. If this is false, writes that had begun may still land; new ones do not.
  bool removal_fences = false;
  /// Once a closed door is drained, no byte of any write that was posted to it lands, not even of a
  /// write that was under way.
  bool closing_fences = false;
  /// Every other door, and the domain's own address, refuses a key of `add_door_region`. If this is
  /// false, a dishonest peer may write past its door until the region is removed, as far as its
  /// provider enforces removal.
  bool door_keys = true;
  /// The most that the rail may have under way: enough to keep it busy, and no more, since the
  /// slices that a slow rail has taken delay the end of their write.
  uint64_t postings_max = 256;
  uint64_t posted_bytes_max = 4 << 20;
  /// Segments of one write. If it is 1, a write is one slice. If it is more, the wire also carries
  /// the number of slices of the write.
  size_t segments_max = 1;
  /// Small writes of one `post_writes`: on some wires they cost less together.
  size_t batched_writes_max = 1;
  /// The target's wire answers each write before it reports the write, which costs a system call.
  /// So bytes that fit into a message arrive sooner in one.
  bool answers_writes = false;
  size_t endpoints = 1;  ///< see endpoints.h
};

/// Bytes that are contiguous at both ends.
struct Segment {
  Bytes source;  ///< at least 1 byte, within the region of the write
  uint64_t target_address = 0;
};

struct Write {
  uint32_t peer = 0;
  uint32_t region = 0;  ///< of the source
  Bytes source;         ///< at least 1 byte, within the region
  uint64_t target_address = 0;
  uint64_t target_key = 0;
  std::span<const Segment> further;  ///< Traits::segments_max - 1 or fewer; read during the call
  std::optional<uint32_t> immediate;
  uint32_t slices = 1;   ///< how often the immediate counts when it arrives
  uint64_t context = 0;  ///< comes back with the completion; not one of kOwnContexts
};

/// A domain that wraps another one uses contexts with both of these bits for its own postings.
inline constexpr uint64_t kOwnContexts = uint64_t{3} << 62;

enum class Event : uint8_t {
  kPosted,     ///< a write or a message of ours has ended
  kReceived,   ///< a message has arrived in a buffer of ours
  kImmediate,  ///< an immediate has arrived; it has no context
  kLanded,  ///< a write without an immediate has landed, if the wire reports it; it has no context
};

struct Completion {
  Event event = Event::kPosted;
  bool ok = true;  ///< false for kReceived: the buffer comes back unused
  uint32_t immediate = 0;
  uint64_t size_bytes = 0;  ///< of a message that has arrived
  uint64_t context = 0;
  uint32_t slices = 1;  ///< of all writes that brought this immediate
};

/// What a domain has dropped of what came from outside: messages, unless it says otherwise.
struct Rejections {
  uint64_t malformed = 0;
  uint64_t unauthenticated = 0;  ///< not sealed with the secret
  uint64_t replayed = 0;         ///< had come before
  uint64_t refused = 0;          ///< connections of other users, where there is no secret
  Rejections& operator+=(const Rejections& other) {
    malformed += other.malformed;
    unauthenticated += other.unauthenticated;
    replayed += other.replayed;
    refused += other.refused;
    return *this;
  }
};

class Domain {
 public:
  static constexpr uint64_t kGatheredBytesMax = 256 << 10;
  static constexpr uint64_t kNever = std::numeric_limits<uint64_t>::max();
  /// `look_within_ns` of a domain that waits for what no descriptor tells.
  static constexpr uint64_t kNowAndThenNs = 20'000'000;

  virtual ~Domain() = default;  // revokes all regions; nothing of it reads or writes memory then

  virtual const Traits& traits() const = 0;
  /// The bytes that a peer passes to `connect`. Opaque, at most kAddressBytesMax.
  virtual Bytes address() const = 0;

  virtual Result<uint32_t> add_region(MutableBytes memory, Access access) = 0;
  /// For a region with Access::kRemoteWrite.
  virtual RemoteRange remote_range(uint32_t region) const = 0;
  virtual void remove_region(uint32_t region) = 0;
  /// For a region that was not removed yet. It may be true although the trait is false.
  virtual bool removal_fences(uint32_t) const { return traits().removal_fences; }
  /// For a removed region, if removal fences it. Once it is kOver, nothing lands there.
  virtual Drain drain(uint32_t) const { return Drain::kOver; }

  /// Makes a peer known, without waiting for it. If the peer does not exist, postings to it fail.
  virtual Result<uint32_t> connect(Bytes address) = 0;
  /// A domain of several endpoints (endpoints.h) connects each of the others to one of `further`.
  virtual Result<uint32_t> connect_all(Bytes address, std::span<const Bytes> /*further*/) {
    return connect(address);
  }
  /// How many of the domain's endpoints have a connection to the peer.
  virtual size_t ways(uint32_t /*peer*/) const { return 1; }
  virtual void disconnect(uint32_t peer) = 0;
  /// For a peer that is not disconnected yet, and is written to no more. Postings under way to it
  /// fail before long, if nobody can read their sources then. On some wires they stay under way
  /// while the peer is silent. The default is for wires that notice by themselves.
  virtual void abandon(uint32_t /*peer*/, Absence /*absence*/) {}

  /// An entrance for one peer, which passes `door_address` to `connect`. Closing the door ends the
  /// peer's postings there: see Traits::closing_fences. Doors carry writes, and no messages.
  virtual Result<uint32_t> open_door() = 0;
  /// The same at the domain's first endpoint alone: such doors cost less, and are slower.
  virtual Result<uint32_t> open_narrow_door() { return open_door(); }
  virtual Bytes door_address(uint32_t door) const = 0;
  /// Of the same door at the domain's other endpoints, if it has several.
  virtual std::vector<Bytes> further_door_addresses(uint32_t /*door*/) const { return {}; }
  /// Memory that peers write through this door alone: a write with its key that comes by another
  /// door is refused (Traits::door_keys). Other regions are reached through every door.
  virtual Result<uint32_t> add_door_region(uint32_t door, MutableBytes memory) = 0;
  /// Memory that peers write, by the name that another domain of this process has for it. No door:
  /// through every door. For wires on which the domain chooses the keys.
  virtual Result<uint32_t> add_twin_region(std::optional<uint32_t> /*door*/,
                                           MutableBytes /*memory*/, const RemoteRange& /*twin*/) {
    return Status::error(traits().provider + " chooses the keys of memory itself");
  }
  /// Begins to close it, and `poll` continues that. Once `drain_door` is kOver, nothing that was
  /// posted to the door lands any more. The caller keeps the memory of its regions until then.
  virtual void close_door(uint32_t door) = 0;
  /// For a door that was closed.
  virtual Drain drain_door(uint32_t door) const = 0;

  /// Slices to this target that fit into so many bytes go as one write, if the engine has no other
  /// rail.
  virtual uint64_t gathered_bytes_max(const RemoteRange&) const { return kGatheredBytesMax; }
  /// Writes of one `post_writes` have so many bytes together, if they are several. They are few
  /// enough that the first one's completion need not come before the last one's.
  static constexpr uint64_t kBatchBytesMax = 16 << 10;
  /// False: the queue is full; poll, and try again. Any other error comes as a completion.
  virtual bool post_write(const Write& write) = 0;
  /// Posts the first of these writes, as many as the queue takes, and returns how many. All have
  /// one peer, region and target key; they are at most Traits::batched_writes_max and
  /// kBatchBytesMax. The default is for wires on which each write costs the same.
  virtual size_t post_writes(std::span<const Write> writes) {
    size_t posted = 0;
    while (posted < writes.size() && post_write(writes[posted])) ++posted;
    return posted;
  }
  virtual bool post_send(uint32_t peer, uint32_t region, Bytes message, uint64_t context) = 0;
  virtual bool post_receive(uint32_t region, MutableBytes buffer, uint64_t context) = 0;

  /// Makes progress, and fills the front of `completions`. Returns how many.
  virtual size_t poll(std::span<Completion> completions) = 0;
  /// The last `poll` has copied bytes itself. The next one may go on with that, even if the last
  /// one has returned 0.
  virtual bool has_copied() const { return false; }

  /// Of what happens between domains, which no user of them sees.
  virtual Rejections rejections() const { return {}; }

  /// Readable once `poll` may have something to do. -1: there is no such descriptor; poll now and
  /// then. The domain owns it.
  virtual int wait_descriptor() const { return -1; }
  /// True: anything that comes from now on makes the descriptor readable. False: poll first.
  virtual bool arm() { return false; }
  /// Poll again within so long though the descriptor is not readable: something is under way that
  /// only a look notices. `kNever`: there is nothing such.
  virtual uint64_t look_within_ns() const { return kNever; }
};

inline constexpr size_t kAddressBytesMax = 128;

}  // namespace braid::fabric
