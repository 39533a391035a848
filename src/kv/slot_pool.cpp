#include "kv/slot_pool.h"

#include <algorithm>

namespace braid::kv {

SlotPool::SlotPool(uint32_t count)
    : size_(count), free_count_(count), free_((size_t{count} + 63) / 64, ~uint64_t{0}) {
  if (count % 64 != 0) free_.back() = (uint64_t{1} << count % 64) - 1;
}

void SlotPool::set_free(Slot slot) {
  free_[slot / 64] |= uint64_t{1} << (slot % 64);
  first_word_ = std::min<size_t>(first_word_, slot / 64);
  ++free_count_;
}

std::optional<SlotPool::Taken> SlotPool::take_fenced(const Marks& behind) {
  const auto found = std::find_if(fenced_.begin(), fenced_.end(),
                                  [&](const Taken& fenced) { return behind.covers(fenced.after); });
  if (found == fenced_.end()) return std::nullopt;
  const Taken taken = *found;
  fenced_.erase(found);
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
