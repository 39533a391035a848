// The registry's relays, which stay once they are open.
#include <algorithm>
#include <bit>

#include "cuda/relaxed_capture.h"
#include "cuda/scoped_context.h"
#include "multipath/context_registry.h"

namespace braid::multipath {

GpuSet ContextRegistry::to_open() const {
  const GpuSet wanted = requested_.load(std::memory_order_acquire);
  GpuSet relays = 0;
  for (int gpu = 0; gpu < relays_.gpu_count(); ++gpu)
    if ((wanted & gpu_bit(gpu)) != 0) relays |= relays_.of(gpu);
  return relays & ~(open_relays() | refused_);
}

// A GPU that cannot be opened (its memory is full, another process has it alone) is done without.
Result<bool> ContextRegistry::open_next_relay() {
  if (const GpuSet waiting = to_open(); waiting != 0) {
    const cuda::RelaxedCapture relaxed(driver_);
    const int gpu = std::countr_zero(waiting);
    // Ended last, without the lock that other processes wait for: the driver may wait for streams
    // that the program holds.
    std::unique_ptr<Relay> failed;
    auto relay = [&] {
      const PeerProcesses::OpeningLock opening = peers_.lock_opening();
      return Relay::open(driver_, options_, relays_.device(gpu), gpu, notify_, &failed);
    }();
    const std::unique_lock lock(mutex_);
    if (relay.ok()) {
      open_relays_.push_back(std::move(relay).value());
    } else {
      refused_ |= gpu_bit(gpu);
      if (first_refusal_.ok()) first_refusal_ = relay.status();
      (void)note(Status::error(relay.status().message() + ". It does not relay"));
    }
    return true;
  }
  const std::shared_lock lock(mutex_);
  if (open_relays_.empty() && !first_refusal_.ok()) return first_refusal_;
  return false;
}

// Once it is open, a relay stays.
Relay* ContextRegistry::open_relay_on(int gpu) const {
  for (const auto& relay : open_relays_)
    if (relay->gpu() == gpu) return relay.get();
  return nullptr;
}

// The lock is tried only: whoever asks is about to tell the program that there is no memory.
uint64_t ContextRegistry::release_buffers(CUdevice device) {
  std::shared_lock lock(mutex_, std::try_to_lock);
  if (!lock) return 0;
  Relay* const relay = open_relay_on(relays_.gpu_of(device));
  lock.unlock();
  if (relay == nullptr) return 0;
  const cuda::RelaxedCapture relaxed(driver_);
  return relay->release_buffers();
}

bool ContextRegistry::restore_buffers() {
  bool is_whole = true;
  for (int gpu = 0; gpu < relays_.gpu_count(); ++gpu) {
    std::shared_lock lock(mutex_);
    Relay* const relay = open_relay_on(gpu);
    lock.unlock();
    if (relay == nullptr || relay->has_buffers()) continue;
    const cuda::RelaxedCapture relaxed(driver_);
    is_whole = relay->restore_buffers().ok() && is_whole;
  }
  return is_whole;
}

// In order of preference: when few paths suffice, those of the target's own socket cross nothing
// shared.
std::vector<Relay*> ContextRegistry::open_relays_for(int gpu) const {
  std::vector<Relay*> relays;
  for (const auto& relay : open_relays_)
    if ((relays_.of(gpu) & gpu_bit(relay->gpu())) != 0) relays.push_back(relay.get());
  std::stable_partition(relays.begin(), relays.end(), [&](const Relay* relay) {
    return relays_.are_neighbours(relay->gpu(), gpu);
  });
  return relays;
}

GpuSet ContextRegistry::open_relays() const {
  GpuSet open = 0;
  for (const auto& relay : open_relays_) open |= gpu_bit(relay->gpu());
  return open;
}

GpuSet ContextRegistry::open_relays_of(int gpu) {
  const std::shared_lock lock(mutex_);
  return open_relays() & relays_.of(gpu);
}

size_t ContextRegistry::count_relays(std::span<RelayCount> into) {
  const std::shared_lock lock(mutex_, std::try_to_lock);
  size_t count = 0;
  if (!lock) return count;
  const uint64_t now_ns = driver_.clock->now_ns();
  for (const auto& relay : open_relays_)
    if (count < into.size()) into[count++] = relay->count(now_ns);
  return count;
}

// In a relay's context: in none the driver would refuse to unregister memory.
void ContextRegistry::free_spare_memory() {
  if (open_relays_.empty()) return;
  if (std::all_of(open_relays_.begin(), open_relays_.end(),
                  [](const auto& relay) { return relay->is_idle(); })) {
    const cuda::ScopedContext scope(driver_, open_relays_.front()->context());
    spare_.clear();
  } else {
    spare_.abandon();
  }
}

}  // namespace braid::multipath
