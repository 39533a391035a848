// Backends move slices: one interface, without defaults, for every kind of way. A way is a path of
// the scheduler: one rail of this process to one rail of a peer, or this process itself, or a
// folder. Its number is never used twice.
//
// A piece ends exactly once. If it ends well, its bytes are in place. If it ends with a cause,
// nothing reads or writes the caller's memory for it any more; if `may_land` is true, bytes of a
// write may still land at the owner until the way is fenced. Threads: one at a time. Nothing
// blocks.
#pragma once

#include <cstdint>
#include <variant>
#include <vector>

#include "transfer/types.h"

namespace braid::transfer {

/// One slice of a request, on one way.
struct Piece {
  uint64_t id = 0;  ///< the caller's; PieceEnd has it too
  Operation operation = Operation::kRead;
  uint64_t buffer = 0;   ///< the registered one of this process that holds `local`
  MutableBytes local;    ///< at least 1 byte
  uint64_t address = 0;  ///< at the owner: a memory address, or the position in the file
  uint64_t file = 0;     ///< which of the owner's files; 0: memory
};

struct PieceEnd {
  uint64_t id = 0;
  Cause cause = Cause::kNone;
  bool may_land = false;
  /// It failed under way, and nobody said why: the network broke, or memory was not accessible.
  bool is_unexplained = false;
};
/// The backend has seen the way break. A probe mends it.
struct WayFailed {
  uint32_t way = 0;
};
/// Nothing that was posted there before `fence` can land any more.
struct WayFenced {
  uint32_t way = 0;
};
/// The way works again as far as its backend sees. A probe has yet to confirm it.
struct WayUp {
  uint32_t way = 0;
};
/// The other end speaks no version that this side speaks. It never works: nothing was posted there.
struct WayOfOtherVersion {
  uint32_t way = 0;
};
/// The process at its other end is gone for good.
struct OwnerLost {
  uint32_t way = 0;
};
using BackendEvent =
    std::variant<PieceEnd, WayFailed, WayFenced, WayUp, WayOfOtherVersion, OwnerLost>;

class Backend {
 public:
  virtual ~Backend() = default;

  virtual void post(uint32_t way, const Piece& piece) = 0;
  /// Nobody wants the piece any more. It ends as soon as nothing reads or writes memory for it, and
  /// does not wait for a file system that does not answer.
  virtual void give_up(uint32_t way, uint64_t piece) = 0;
  /// Checks whether the way works, and mends it if possible. A probe ends as a piece does.
  virtual void probe(uint32_t way, uint64_t id) = 0;
  /// Ends all pieces that were posted on the way. WayFenced follows.
  virtual void fence(uint32_t way) = 0;

  /// Makes progress. True: something happened, and there may be more to do at once.
  virtual bool step(uint64_t now_ns) = 0;
  /// The events since the last call.
  virtual std::vector<BackendEvent> take_events() = 0;

  /// When `step` must be called even if nothing arrives.
  virtual uint64_t next_deadline_ns() const = 0;
  /// True: every arrival from now on makes a descriptor of the engine readable. False: step first.
  virtual bool arm() = 0;
};

}  // namespace braid::transfer
