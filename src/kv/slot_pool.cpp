#include "kv/slot_pool.h"

#include <algorithm>
#include <bit>

namespace braid::kv {

SlotPool::SlotPool(uint32_t count) : size_(count), free_((count + 63) / 64) {
  for (Slot slot = 0; slot < count; ++slot) set_free(slot);
}

void SlotPool::set_free(Slot slot) {
  free_[slot / 64] |= uint64_t{1} << (slot % 64);
  first_word_ = std::min<size_t>(first_word_, slot / 64);
  ++free_count_;
}

std::optional<SlotPool::Taken> SlotPool::take(Reuse reuse) {
  if (free_count_ > 0) {
    while (free_[first_word_] == 0) ++first_word_;
    uint64_t& word = free_[first_word_];
    const Slot slot = static_cast<Slot>(first_word_ * 64 + std::countr_zero(word));
    word &= word - 1;
    --free_count_;
    return Taken{slot, {}};
  }
  if (reuse == Reuse::kPassed || fenced_.empty()) return std::nullopt;
  const Taken taken = fenced_.front();
  fenced_.pop_front();
  return taken;
}

void SlotPool::give_back(Slot slot, const Marks& after) {
  if (passed_.covers(after))
    set_free(slot);
  else
    fenced_.push_back({slot, after});
}

void SlotPool::pass(const Marks& passed) {
  passed_.join(passed);
  std::erase_if(fenced_, [this](const Taken& fenced) {
    if (!passed_.covers(fenced.after)) return false;
    set_free(fenced.slot);
    return true;
  });
}

void SlotPool::free_fenced() {
  for (const Taken& fenced : fenced_) set_free(fenced.slot);
  fenced_.clear();
}

}  // namespace braid::kv
