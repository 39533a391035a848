#include "fabric/gpu/passage.h"

namespace braid::fabric::gpu {

/// What a lane holds until the driver has unpinned the memory.
struct Passage::Lease {
  ~Lease() { is_held->store(false, std::memory_order_release); }

  std::shared_ptr<HostMemory> memory;
  std::shared_ptr<std::atomic<bool>> is_held;
};

bool Passage::is_being_unpinned() const {
  return pinned_by_ == nullptr && is_held_->load(std::memory_order_acquire);
}

std::shared_ptr<HostMemory> Passage::lend() {
  is_held_->store(true, std::memory_order_relaxed);
  const std::shared_ptr<Lease> lease(new Lease{memory_, is_held_});  // owner: lease
  return {lease, memory_.get()};
}

void Passage::pin(const std::shared_ptr<Lane>& lane) {
  stay(*lane);
  if (pinned_by_ != nullptr || is_being_unpinned()) return;
  pinned_by_ = lane;
  lent_ = lend();
  lane->pin(lent_);
}

bool Passage::begin_copy() {
  if (is_leaving_ || is_being_unpinned()) return true;
  ++copies_;
  return false;
}

void Passage::end_copy(bool uses_bounce_buffer) {
  if (!uses_bounce_buffer) --copies_;
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
  pinned_by_->unpin(lent_);
  lent_.reset();
  pinned_by_.reset();
}

}  // namespace braid::fabric::gpu
