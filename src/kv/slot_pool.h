// The slots of one side, GPU or host. A slot is free, owned by one block, or fenced: no block owns
// it, but work that was enqueued before may still read or write it.
//
// A fenced slot becomes free when its marks have passed (`pass`). Free slots are taken lowest
// first, so that blocks which move together lie together. Pure; one thread at a time.
#pragma once

#include <bit>
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
    Marks after;  ///< of a fenced slot: its next use must come after these
  };

  explicit SlotPool(uint32_t count);

  /// Takes a free slot, or else the first fenced one whose marks `behind` covers. The caller orders
  /// its stream behind these marks.
  std::optional<Taken> take(const Marks& behind = {}) {
    return free_count_ > 0 ? Taken{take_free(), {}} : take_fenced(behind);
  }
  /// Fences a slot; it becomes free once `after` has passed.
  void give_back(Slot slot, const Marks& after);
  /// `passed` has happened: fenced slots whose marks have passed become free.
  void pass(const Marks& passed);
  /// Frees all fenced slots: no work touches them any more.
  void free_fenced();

  uint32_t size() const { return size_; }
  uint32_t free_count() const { return free_count_; }
  uint32_t fenced_count() const { return static_cast<uint32_t>(fenced_.size()); }
  uint32_t owned_count() const { return size_ - free_count_ - fenced_count(); }

 private:
  void set_free(Slot slot);
  std::optional<Taken> take_fenced(const Marks& behind);
  Slot take_free() {
    while (free_[first_word_] == 0) ++first_word_;
    uint64_t& word = free_[first_word_];
    const Slot slot = static_cast<Slot>(first_word_ * 64 + std::countr_zero(word));
    word &= word - 1;
    --free_count_;
    return slot;
  }

  uint32_t size_;
  uint32_t free_count_;
  std::vector<uint64_t> free_;  // a bit for each slot
  size_t first_word_ = 0;       // words before it have no bit
  std::deque<Taken> fenced_;
  Marks passed_;
};

}  // namespace braid::kv
