// How the engine's thread sleeps until a descriptor is readable, a time has come, or somebody wakes
// it. Under the service's mutex but for the sleep itself.
#pragma once

#include <cstdint>
#include <mutex>
#include <vector>

namespace braid::fabric {

class Sleep {
 public:
  Sleep();
  ~Sleep();
  Sleep(const Sleep&) = delete;
  Sleep& operator=(const Sleep&) = delete;

  /// Gives the lock back meanwhile.
  void until(uint64_t at_ns, uint64_t now_ns, const std::vector<int>& descriptors,
             std::unique_lock<std::mutex>& lock);
  /// Nothing, if nobody sleeps, or sleeps for less long.
  void wake_before(uint64_t at_ns);
  void wake();

 private:
  int waker_;  // an eventfd; -1: none is left, and nobody sleeps
  bool is_asleep_ = false;
  uint64_t at_ns_ = 0;
};

}  // namespace braid::fabric
