// A thread that waits for another one: awake for a moment, since being woken costs both, then
// asleep.
#pragma once

#include <atomic>
#include <cstdint>

namespace braid::fabric {

class Parked {
 public:
  /// Blocks until `release`, or `end_ns`. False: not released.
  bool await(uint64_t end_ns = ~uint64_t{0});
  /// Once. Whoever waits may destroy this object at once.
  void release();
  bool is_released() const { return state_.load(std::memory_order_acquire) == kReleased; }

 private:
  static constexpr uint32_t kAwake = 0, kAsleep = 1, kReleased = 2;
  bool await_awake(uint64_t end_ns);

  std::atomic<uint32_t> state_{kAwake};  // a futex
};

}  // namespace braid::fabric
