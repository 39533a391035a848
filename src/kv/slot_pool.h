// The slots of one side, GPU or host: each is free, owned by one block, or fenced: nobody's, while
// something that was put into a stream before may still read or write it.
//
// A fenced slot becomes free when its marks have passed (`pass`). Free slots are taken lowest
// first, so that blocks which move together lie together. Pure; one thread at a time.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "kv/marks.h"

namespace braid::kv {

using Slot = uint32_t;

class SlotPool {
 public:
  struct Taken {
    Slot slot;
    Marks after;  ///< of a fenced slot: what is done there must come after these
  };

  explicit SlotPool(uint32_t count);

  /// A free slot; if there is none, the one that was fenced first of those whose marks `behind`
  /// covers. Whoever takes such a slot orders its stream behind them.
  std::optional<Taken> take(const Marks& behind = {});
  /// Nobody's from now on, and free once `after` has passed.
  void give_back(Slot slot, const Marks& after);
  /// `passed` has happened.
  void pass(const Marks& passed);
  /// Nothing touches fenced slots any more, whatever has passed.
  void free_fenced();

  uint32_t size() const { return size_; }
  uint32_t free_count() const { return free_count_; }
  uint32_t fenced_count() const { return static_cast<uint32_t>(fenced_.size()); }
  uint32_t owned_count() const { return size_ - free_count_ - fenced_count(); }
  bool is_free(Slot slot) const { return (free_[slot / 64] >> (slot % 64) & 1) != 0; }

 private:
  void set_free(Slot slot);

  uint32_t size_;
  uint32_t free_count_;
  std::vector<uint64_t> free_;  // a bit for each slot
  size_t first_word_ = 0;       // words before it have no bit
  std::deque<Taken> fenced_;
  Marks passed_;
};

}  // namespace braid::kv
