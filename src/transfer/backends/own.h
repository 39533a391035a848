// The common part of the backends that use no network: memory, mapped memory of other processes,
// files, GPU copies. No network breaks their ways. A piece always ends by itself, however late, and
// is not posted again elsewhere.
#pragma once

#include <cstring>
#include <limits>
#include <utility>
#include <vector>

#include "transfer/backend.h"

namespace braid::transfer {

class OwnBackend : public Backend {
 public:
  /// A piece that has begun ends by itself.
  void give_up(uint32_t, uint64_t) override {}
  void probe(uint32_t, uint64_t id) final { tell(id, Cause::kNone); }
  void fence(uint32_t way) final { fencing_.push_back(way); }
  bool step(uint64_t) final {
    if (under_way_ == 0)
      for (const uint32_t way : std::exchange(fencing_, {})) events_.push_back(WayFenced{way});
    return !events_.empty();
  }
  std::vector<BackendEvent> take_events() final { return std::exchange(events_, {}); }
  uint64_t next_deadline_ns() const final {
    return events_.empty() ? std::numeric_limits<uint64_t>::max() : 0;
  }
  bool arm() final { return events_.empty() && (fencing_.empty() || under_way_ > 0); }

 protected:
  /// Copies between host memory of this process and the bytes at `far`.
  static void copy(const Piece& piece, std::byte* far) {
    if (piece.operation == Operation::kWrite)
      std::memmove(far, piece.local.data(), piece.local.size());
    else
      std::memmove(piece.local.data(), far, piece.local.size());
  }
  /// `ended` follows.
  void begin() { ++under_way_; }
  void ended(uint64_t piece, Cause cause) {
    --under_way_;
    tell(piece, cause);
  }
  /// Reports the end of a piece that was not begun.
  void tell(uint64_t piece, Cause cause) { events_.push_back(PieceEnd{piece, cause, false}); }

 private:
  size_t under_way_ = 0;
  std::vector<uint32_t> fencing_;  // ways that are fenced once nothing is under way
  std::vector<BackendEvent> events_;
};

}  // namespace braid::transfer
