// The parts of the local domain. This domain writes to *peers*, and *visitors* write to this
// domain. Each pair of writer and owner shares a segment of memory, and a socket that carries
// offers of memory. Other packets are rings: they wake a domain that sleeps.
#pragma once

#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <unordered_map>
#include <vector>

#include "fabric/domain.h"
#include "fabric/gpu/lane.h"
#include "fabric/local/export.h"
#include "fabric/local/limits.h"
#include "fabric/local/mapping.h"
#include "fabric/local/segment.h"
#include "fabric/local/waker.h"
#include "fabric/slot_map.h"
#include "fabric/table.h"

namespace braid::fabric::local {

/// Records in the queues; each begins with its struct.
enum Kind : uint32_t {
  // to the owner
  kMessage = 1,  ///< Numbered, then the message
  kBytes,        ///< HostWrite, then bytes
  kLanded,       ///< Landed
  kAsk,          ///< Numbered: the key of memory; the socket brings an Offer
  kLetGo,        ///< Numbered: the key of memory that is not mapped any more
  // to the writer
  kEnded,    ///< Numbered: of a message, or of a write into host memory
  kRemoved,  ///< Numbered: the key of memory that must not be written any more
};
struct Numbered {
  uint64_t number = 0;
  uint64_t ok = 1;
};
struct Landed {
  uint64_t immediate = 0;
  uint64_t count = 0;
};
struct HostWrite {
  uint64_t number = 0;
  uint64_t address = 0;  ///< of these bytes
  uint64_t key = 0;
  uint64_t is_last = 0;
  uint64_t has_immediate = 0;
  uint64_t immediate = 0;
  uint64_t slices = 1;
};

template <typename T>
Bytes bytes_of(const T& thing) {
  return {reinterpret_cast<const std::byte*>(&thing), sizeof thing};
}

/// The struct at the front; nothing if there are too few bytes.
template <typename T>
std::optional<T> front_of(Bytes bytes) {
  T thing;
  if (bytes.size() < sizeof thing) return std::nullopt;
  std::memcpy(&thing, bytes.data(), sizeof thing);
  return thing;
}

/// The records to one process. Those that find no room in the queue wait.
class Sayings {
 public:
  explicit Sayings(Queue* queue) : producer_(queue) {}
  template <typename T>
  void say(Kind kind, const T& thing) {
    const Bytes bytes = bytes_of(thing);
    if (!waiting_.empty() || !producer_.put(kind, bytes))
      waiting_.push_back({kind, {bytes.begin(), bytes.end()}});
  }
  /// False: there is no room now.
  template <typename T>
  bool say_now(Kind kind, const T& thing, Bytes more) {
    return waiting_.empty() && producer_.put(kind, bytes_of(thing), more);
  }
  void go_on() {
    while (!waiting_.empty() && producer_.put(waiting_.front().kind, waiting_.front().bytes))
      waiting_.pop_front();
  }
  bool is_empty() const { return waiting_.empty(); }
  bool has_to_ring() { return producer_.has_to_ring(); }
  /// The process does not take its records.
  bool is_overfull() const { return waiting_.size() > kSayingsMax; }

 private:
  struct Saying {
    uint32_t kind;
    std::vector<std::byte> bytes;
  };
  Producer producer_;
  std::deque<Saying> waiting_;
};

class LocalDomain final : public Domain {
 public:
  static Result<std::unique_ptr<Domain>> open();
  ~LocalDomain() override;

  const Traits& traits() const override { return traits_; }
  Bytes address() const override { return address_; }
  Result<uint32_t> add_region(MutableBytes memory, Access access) override;
  RemoteRange remote_range(uint32_t region) const override;
  void remove_region(uint32_t region) override;
  Drain drain(uint32_t region) const override;
  Result<uint32_t> connect(Bytes address) override;
  void disconnect(uint32_t peer) override;
  void abandon(uint32_t peer, Absence absence) override;
  // This domain has no doors: Traits::closing_fences is false.
  Result<uint32_t> open_door() override { return Status::error("this wire has no doors"); }
  Bytes door_address(uint32_t) const override { return {}; }
  Result<uint32_t> add_door_region(uint32_t, MutableBytes) override {
    return Status::error("this wire has no doors");
  }
  void close_door(uint32_t) override {}
  Drain drain_door(uint32_t) const override { return Drain::kOver; }
  uint64_t gathered_bytes_max(const RemoteRange& target) const override {
    return (target.base & kGpuBase) != 0 ? kGatheredToGpuBytesMax : kGatheredToHostBytesMax;
  }
  bool post_write(const Write& write) override;
  bool post_send(uint32_t peer, uint32_t region, Bytes message, uint64_t context) override;
  bool post_receive(uint32_t region, MutableBytes buffer, uint64_t context) override;
  size_t poll(std::span<Completion> completions) override;
  bool has_copied() const override { return has_copied_; }
  int wait_descriptor() const override { return waker_.descriptor(); }
  bool arm() override;
  /// Engines of older versions do not ring.
  uint64_t look_within_ns() const override {
    return peers_.is_empty() && visitors_.size() == 0 ? kNever : kNowAndThenNs;
  }

 private:
  struct Region {
    MutableBytes memory;
    std::shared_ptr<gpu::Lane> lane;  // null: host memory
    uint64_t key = 0;
    std::shared_ptr<Export> exported;  // null: peers may not write it, or host memory
    std::optional<Exported> pages;     // of host memory that peers can map
    std::set<uint64_t> holders;        // visitors that have mapped it
    bool is_removed = false;
  };
  /// Memory of a peer.
  struct Import {
    std::shared_ptr<Mapping> mapping;  // of GPU memory; null: asked for, or refused
    MappedPages pages;                 // of host memory, likewise
    std::byte* first = nullptr;        // there: the region's first byte
    bool is_refused = false;           // by the owner, or this process cannot map it
    Offer offer;
    int gpu = -1;
    bool is_removed = false;                     // the owner has removed it: write nothing more
    uint64_t copies = 0;                         // under way
    std::shared_ptr<gpu::Lane> lane;             // used it last; null: none, or it is being left
    std::set<std::shared_ptr<gpu::Lane>> lanes;  // that have mapped it
    std::vector<uint64_t> waiting;               // postings
    bool is_open() const { return mapping != nullptr || pages.memory() != nullptr; }
    bool is_awaited() const { return !is_open() && !is_refused; }
    /// The owner keeps the memory until it is let go, and says when it has removed it.
    bool is_held() const { return !is_refused || offer.kind != Offer::kRefused; }
    bool let_go();
  };
  struct Peer {
    std::optional<Socket> socket;    // none: the peer cannot be reached (any more)
    std::optional<Segment> segment;  // with the next two: none once that is so, and nothing ends
    std::optional<Sayings> sayings;
    std::optional<Consumer> consumer;
    std::map<uint32_t, uint64_t> landed;  // immediates to report, and how often
    std::map<uint64_t, Import> imports;   // by key
    std::deque<uint64_t> page_writes;     // postings that this process copies, one at a time
    std::deque<uint64_t> host_writes;     // postings that go into the queue, one at a time
    std::set<uint64_t> unanswered;        // postings
    enum class Bounce : uint8_t { kFree, kFilling, kFull } state = Bounce::kFree;
    std::vector<std::byte> bounce;  // a GPU's bytes on their way to host memory
    bool is_abandoned = false;
    bool is_leaving = false;
    bool is_reachable() const { return socket && !is_abandoned && !is_leaving; }
    bool has_something_under_way() const { return !imports.empty() || !host_writes.empty(); }
  };
  struct Posting {
    Write write;  // without `further`
    uint32_t peer = 0;
    std::vector<fabric::Segment> further;
    Import* import = nullptr;
    size_t copies = 0;  // under way
    bool ok = true;
    // Only for writes into host memory: the position of the bytes that go next.
    size_t segment = 0;
    uint64_t next = 0;  // of its bytes
    size_t segment_count() const { return 1 + further.size(); }
    fabric::Segment segment_at(size_t index) const {
      return index == 0 ? fabric::Segment{write.source, write.target_address} : further[index - 1];
    }
    bool is_put() const { return segment == segment_count(); }
    /// So many bytes of the present segment are put.
    void put(uint64_t size_bytes) {
      next += size_bytes;
      if (next < segment_at(segment).source.size()) return;
      next = 0;
      ++segment;
    }
  };
  /// The route of writes from one region into another: looked up once for many writes.
  struct Route {
    uint32_t peer = 0;
    uint32_t region = 0;
    uint64_t key = 0;
    Import* import = nullptr;
    const std::atomic<uint64_t>* slot = nullptr;
    CUdeviceptr address = 0;  // of the target region, as the lane or this process sees it
    uint64_t number = 0;
    bool may_be_kernels = false;
    std::vector<gpu::Copy>* batch = nullptr;  // null: this process copies
    bool is_of(const Write& write) const {
      return peer == write.peer && region == write.region && key == write.target_key;
    }
  };
  struct Visitor {
    std::optional<Socket> socket;
    std::optional<Segment> segment;
    std::optional<Sayings> sayings;
    std::optional<Consumer> consumer;
    struct Slot {
      uint64_t place;  // its slot on the board
      uint32_t region;
    };
    std::map<uint64_t, Slot> slots;  // by key: the regions that it was offered
    std::deque<uint64_t> to_offer;   // keys
    std::vector<uint64_t> free_slots;
    std::set<uint64_t> broken;  // host writes of which a part was refused
    uint64_t held = 0;          // its messages that wait for buffers
    File process;               // a pidfd, since a child of the process may keep the socket open
    Watch end;                  // of the process
    bool has_ended = false;
    bool has_let_go = false;  // of all memory
  };
  struct Message {
    uint64_t visitor;
    uint64_t number;
    std::vector<std::byte> bytes;
  };
  struct Buffer {
    MutableBytes memory;
    uint64_t context;
  };

  LocalDomain(Socket listener, const std::string& name);
  uint64_t new_key();

  // domain.cpp
  void release(const std::shared_ptr<gpu::Lane>& lane);
  void leave_lanes();
  static bool leave(Import& import, const std::shared_ptr<gpu::Lane>& lane);
  static void withdraw(Visitor& visitor, uint64_t key, const Visitor::Slot& slot);
  void end_posting(uint64_t posting, bool ok);
  void take_copies();
  void begin_copy(const std::shared_ptr<gpu::Lane>& lane, gpu::CopyKind kind, gpu::Copy copy);
  void look_at_strangers();
  void look_at_sockets();
  void look_at_visitors();
  bool is_time_to_look();
  void match_messages();
  void wake_up();
  void ring();
  bool is_idle();

  // writer.cpp
  void write_to_host(Peer& peer);
  bool put_host_part(Peer& peer, uint64_t posting);
  void advance(Peer& peer);
  void listen_to(Peer& peer);
  void handle(Peer& peer, const Consumer::Record& record);
  void stop_postings(Peer& peer);
  void lose(Peer& peer);
  void forget_if_over(uint32_t peer);

  // imports.cpp
  void write_to_shared(uint64_t posting);
  Import& import_of(const Posting& posting);
  void start_copy(uint64_t posting);
  Mapping::State find_route(const Posting& posting);
  std::shared_ptr<gpu::Lane> lane_for(const Posting& posting) const;
  void copied(uint64_t posting, bool ok);
  void copy_pages(Peer& peer);
  bool copy_part(const Peer& peer, Posting& posting, uint64_t& left_bytes);
  void end_write(Peer& peer, uint64_t posting, bool ok);
  void offered(Peer& peer, Packet packet);
  static bool is_sound(const Offer& offer, const Peer& peer);
  static bool open(Import& import, File file);
  void refuse(Peer& peer, uint64_t posting);
  void stop_writing(Import& import);
  void start_waiting(Peer& peer);
  void let_go_of_removed(Peer& peer);
  void close_imports(Peer& peer);

  // owner.cpp
  void welcome(Packet packet, Socket socket);
  bool serve(uint64_t id, Visitor& visitor);
  void handle(uint64_t id, Visitor& visitor, const Consumer::Record& record);
  Region* region_of(uint64_t key);
  bool is_answerable(uint64_t key);
  bool offer(uint64_t id, Visitor& visitor, uint64_t key);
  void land(Visitor& visitor, const HostWrite& write, Bytes bytes);
  void let_go(uint64_t visitor, uint64_t key);
  void drop_holder(uint64_t visitor, uint32_t region);
  void leave(uint64_t visitor);
  void forget_ended_processes();

  Traits traits_;
  Waker waker_;
  bool is_asleep_ = false;
  bool has_copied_ = false;
  Socket listener_;
  std::vector<std::byte> address_;
  std::shared_ptr<gpu::Ended> ended_ = std::make_shared<gpu::Ended>();
  std::vector<gpu::Ended::Copy> ended_now_;
  uint64_t copies_ = 0;
  gpu::LaneEnds lane_ends_;
  /// Lanes of contexts without regions. Lanes of primary contexts stay, since unloading the kernel
  /// makes the driver wait for the program's streams.
  std::set<std::shared_ptr<gpu::Lane>> leaving_;
  /// Copies to hand to lanes at the next poll, since handing them over one by one costs more.
  std::map<std::pair<gpu::Lane*, gpu::CopyKind>, std::vector<gpu::Copy>> batches_;

  std::unordered_map<uint32_t, Region> regions_;
  std::unordered_map<uint64_t, uint32_t> region_of_key_;
  uint32_t next_region_ = 0;
  Table<Peer> peers_;
  std::optional<Route> route_;  // the last
  uint64_t next_route_ = 1;
  SlotMap<Posting> postings_;
  SlotMap<Visitor> visitors_;
  std::vector<Socket> strangers_;  // that have not said hello
  struct Ghost {
    File process;
    Watch end;
    uint64_t visitor;
    std::vector<uint32_t> regions;  // that it holds
  };
  std::vector<Ghost> ghosts_;  // processes that left without unmapping
  std::deque<Message> messages_;
  std::deque<Buffer> buffers_;
  std::deque<Completion> ready_;
  uint64_t looked_ns_ = 0;
  uint64_t looked_for_ends_ns_ = 0;
  bool looks_eagerly_ = false;  // an offer is awaited
};

}  // namespace braid::fabric::local
