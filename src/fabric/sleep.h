// The sleep of a thread that makes progress, until a descriptor is readable, a time has come, or
// somebody wakes it. Used under the mutex of whoever owns it, which it gives back while it sleeps.
#pragma once

#include <cstdint>
#include <vector>

namespace braid::fabric {

class Sleep {
 public:
  Sleep();
  ~Sleep();
  Sleep(const Sleep&) = delete;
  Sleep& operator=(const Sleep&) = delete;

  /// Sleeps. Gives the lock back meanwhile.
  template <typename Lock>
  void until(uint64_t at_ns, uint64_t now_ns, const std::vector<int>& descriptors, Lock& lock) {
    if (at_ns <= now_ns) return;
    is_asleep_ = true;
    at_ns_ = at_ns;
    lock.unlock();
    poll(at_ns - now_ns, descriptors);
    lock.lock();
    is_asleep_ = false;
  }
  /// Wakes the thread if it sleeps beyond `at_ns`.
  void wake_before(uint64_t at_ns);
  void wake();
  /// For somebody who has used the descriptors while the thread may sleep. `arm()` lets them wake
  /// it again. If it returns false, the thread has to look first, and is woken.
  template <typename Arm>
  void rearm(const Arm& arm) {
    if (is_asleep_ && !arm()) wake();
  }

 private:
  void poll(uint64_t limit_ns, const std::vector<int>& descriptors) const;

  int waker_;  // an eventfd; -1: none could be made, and the thread takes naps
  bool is_asleep_ = false;
  uint64_t at_ns_ = 0;
};

}  // namespace braid::fabric
