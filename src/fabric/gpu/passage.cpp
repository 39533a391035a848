#include "fabric/gpu/passage.h"

#include <atomic>

namespace braid::fabric::gpu {

/// A lane holds the memory until the driver has unpinned it.
bool Passage::is_being_unpinned() {
  if (is_unpinned_ || pinned_by_ != nullptr) return false;
  is_unpinned_ = memory_.use_count() == 1;
  std::atomic_thread_fence(std::memory_order_acquire);  // the count is read without an order
  return !is_unpinned_;
}

void Passage::pin(const std::shared_ptr<Lane>& lane) {
  stay(*lane);
  if (pinned_by_ != nullptr || is_being_unpinned()) return;
  pinned_by_ = lane;
  is_unpinned_ = false;
  lane->pin(memory_);
}

bool Passage::begin_copy() {
  if (is_leaving_ || is_being_unpinned()) return true;
  ++copies_;
  return false;
}

void Passage::end_copy(bool goes_beside) {
  if (!goes_beside) --copies_;
}

bool Passage::leave(const Lane& lane) {
  if (pinned_by_.get() != &lane) return true;
  is_leaving_ = copies_ > 0;
  if (is_leaving_) return false;
  give_back();
  return true;
}

void Passage::stay(const Lane& lane) {
  if (pinned_by_.get() == &lane) is_leaving_ = false;
}

void Passage::give_back() {
  if (pinned_by_ == nullptr) return;
  pinned_by_->unpin(memory_);
  pinned_by_.reset();
}

}  // namespace braid::fabric::gpu
