// Who looks after a service's engine: its thread, or callers that wait for something. The fabric's
// service and that of transfers have the same loops.
#pragma once

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>

#include "base/clock.h"

namespace braid::fabric {

inline constexpr uint64_t kBusyNs = 100'000;  ///< after something has happened, it looks at once
/// Between looks when nothing happens, where no descriptor tells.
inline constexpr auto kQuiet = std::chrono::microseconds(400);

/// A caller that waits drives the engine itself, and so is told soonest. When nothing has happened
/// for so long it sleeps, and leaves that to the thread.
inline constexpr uint64_t kDriveNs = 200'000;

/// What callers that wait for something and the thread tell each other.
struct Drivers {
  std::atomic<int> waiting = 0;     ///< callers that drive the engine
  std::condition_variable changed;  ///< nobody drives any more, or the end has begun
  int sleeping = 0;                 ///< callers that wait for `happened`; under the mutex
  std::condition_variable happened;
  std::atomic<bool> is_ending = false;

  /// Under the mutex: what callers wait for may have come.
  void tell() {
    if (sleeping > 0) happened.notify_all();
  }
  void end() {
    is_ending = true;
    changed.notify_all();
    happened.notify_all();
  }
};

/// A caller, while it drives.
class Driver {
 public:
  explicit Driver(Drivers& drivers) : drivers_(drivers) { ++drivers_.waiting; }
  ~Driver() {
    if (--drivers_.waiting == 0) drivers_.changed.notify_all();
  }
  Driver(const Driver&) = delete;
  Driver& operator=(const Driver&) = delete;

 private:
  Drivers& drivers_;
};

/// A caller, while it sleeps; under the mutex.
class Sleeper {
 public:
  explicit Sleeper(Drivers& drivers) : drivers_(drivers) { ++drivers_.sleeping; }
  ~Sleeper() { --drivers_.sleeping; }
  Sleeper(const Sleeper&) = delete;
  Sleeper& operator=(const Sleeper&) = delete;

 private:
  Drivers& drivers_;
};

/// Until the end: steps while nobody else drives, and rests when nothing has happened for a while.
/// Both are called under the mutex; `step` says whether there may be more to do at once.
template <typename Step, typename Rest>
void look_until_end(std::mutex& mutex, Drivers& drivers, const Step& step, const Rest& rest) {
  uint64_t happened_ns = 0;
  bool has_rested = false;  // a deadline may have come, which is nothing to do
  std::unique_lock lock(mutex);
  while (!drivers.is_ending) {
    const bool is_driven = drivers.waiting > 0;
    const bool is_busy = !is_driven && step();
    if (is_busy) happened_ns = monotonic_ns();
    if (is_busy || has_rested) drivers.tell();
    has_rested = false;
    if (is_driven) {
      drivers.changed.wait(lock, [&] { return drivers.waiting == 0 || drivers.is_ending; });
    } else if (monotonic_ns() - happened_ns > kBusyNs) {
      rest(lock);
      has_rested = true;
    } else {
      lock.unlock();
      sched_yield();
      lock.lock();
    }
  }
}

/// Of a caller, which holds the lock: until `is_met`, or `end_ns`, or the end of the service.
/// False: it is not met. All three are called under the mutex; `follow_up` whenever others go on.
template <typename IsMet, typename Step, typename FollowUp>
bool wait_until(std::unique_lock<std::mutex>& lock, Drivers& drivers, uint64_t end_ns,
                const IsMet& is_met, const Step& step, const FollowUp& follow_up) {
  constexpr uint64_t kLongestSleepNs = 1'000'000'000;
  uint64_t now_ns = monotonic_ns(), happened_ns = now_ns;
  bool met = false;
  {
    const Driver driver(drivers);
    while (!(met = is_met())) {
      const bool is_busy = step();
      if (is_busy) drivers.tell();
      now_ns = monotonic_ns();
      if (is_busy) happened_ns = now_ns;
      if (drivers.is_ending || now_ns >= end_ns || now_ns - happened_ns > kDriveNs) break;
      lock.unlock();
      if (!is_busy) sched_yield();
      lock.lock();
    }
  }
  follow_up();
  const Sleeper sleeper(drivers);
  for (; !met && !drivers.is_ending && now_ns < end_ns; now_ns = monotonic_ns()) {
    const uint64_t sleep_ns = std::min(end_ns - now_ns, kLongestSleepNs);
    drivers.happened.wait_for(lock, std::chrono::nanoseconds(sleep_ns));
    met = is_met();
  }
  return met;
}

}  // namespace braid::fabric
