// How slices move: one interface, without defaults, for every kind of way. A way is what the
// scheduler calls a path: one rail of this process to one rail of a peer, or this process itself,
// or a folder. Its number is never used twice.
//
// A piece ends exactly once. Ended well: the bytes are at their place. Ended with a cause: nothing
// reads or writes the caller's memory for it any more; where `may_land` is true, bytes of a write
// may still land at the owner, until the way is fenced. Threads: one at a time. Nothing blocks.
#pragma once

#include <cstdint>
#include <variant>
#include <vector>

#include "transfer/types.h"

namespace braid::transfer {

/// One slice of a request, on one way.
struct Piece {
  uint64_t id = 0;  ///< the caller's; comes back with the end
  Operation operation = Operation::kRead;
  uint64_t buffer = 0;   ///< the registered one of this process that holds `local`
  MutableBytes local;    ///< at least 1 byte
  uint64_t address = 0;  ///< at the owner: of memory, or the position in the file
  uint64_t file = 0;     ///< which of the owner's files; 0: memory
};

struct PieceEnd {
  uint64_t id = 0;
  Cause cause = Cause::kNone;
  bool may_land = false;
};
/// The way has broken, as its backend sees. It is mended by whoever probes it.
struct WayFailed {
  uint32_t way = 0;
};
/// Nothing that was posted there before `fence` can land any more.
struct WayFenced {
  uint32_t way = 0;
};
/// It carries again, as far as its backend sees: a probe is to show it.
struct WayUp {
  uint32_t way = 0;
};
/// The process at its other end is gone for good.
struct OwnerLost {
  uint32_t way = 0;
};
using BackendEvent = std::variant<PieceEnd, WayFailed, WayFenced, WayUp, OwnerLost>;

class Backend {
 public:
  virtual ~Backend() = default;

  virtual void post(uint32_t way, const Piece& piece) = 0;
  /// Looks whether the way works, and mends it if it can. Ends as a piece does.
  virtual void probe(uint32_t way, uint64_t id) = 0;
  /// Ends all that was posted there. WayFenced follows.
  virtual void fence(uint32_t way) = 0;

  /// Makes progress. True: something happened, and there may be more to do at once.
  virtual bool step(uint64_t now_ns) = 0;
  /// What has happened since the last call.
  virtual std::vector<BackendEvent> take_events() = 0;

  /// When `step` has something to do although nothing arrives.
  virtual uint64_t next_deadline_ns() const = 0;
  /// Readable once something has arrived.
  virtual std::vector<int> wait_descriptors() = 0;
  /// Some of it tells nobody what arrives: look now and then.
  virtual bool has_to_be_asked() const = 0;
  /// True: whatever comes from now on makes a descriptor readable. False: step first.
  virtual bool arm() = 0;
};

}  // namespace braid::transfer
