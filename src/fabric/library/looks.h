// How often a service's thread looks after its engine. The fabric's service and that of transfers
// have the same loop.
#pragma once

#include <sched.h>

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

/// So soon a caller that drove the engine, and has not said that the thread is to go on, comes
/// back.
inline constexpr uint64_t kComesBackNs = 100'000;

/// What callers that wait for something, and so drive the engine, tell the thread.
struct Drivers {
  std::atomic<int> waiting = 0;
  uint64_t left_ns = 0;             ///< when the last one left that may come back; under the mutex
  std::condition_variable changed;  ///< nobody waits any more, or the end has begun
  std::atomic<bool> is_ending = false;
};

/// Until the end: steps while nobody else drives, and rests when nothing has happened for a while.
/// Both are called under the mutex; `step` says whether there may be more to do at once.
template <typename Step, typename Rest>
void look_until_end(std::mutex& mutex, Drivers& drivers, const Step& step, const Rest& rest) {
  uint64_t happened_ns = 0;
  std::unique_lock lock(mutex);
  while (!drivers.is_ending) {
    const bool is_driven = drivers.waiting > 0 || monotonic_ns() < drivers.left_ns + kComesBackNs;
    if (!is_driven && step()) happened_ns = monotonic_ns();
    if (is_driven) {
      drivers.changed.wait_for(lock, kQuiet);
    } else if (monotonic_ns() - happened_ns > kBusyNs) {
      rest(lock);
    } else {
      lock.unlock();
      sched_yield();
      lock.lock();
    }
  }
}

}  // namespace braid::fabric
