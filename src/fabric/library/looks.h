// The loops that drive a service's engine: its own thread drives it, or a caller that waits for
// something. The services of the fabric and of transfers share these loops.
#pragma once

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "fabric/library/delegating_mutex.h"
#include "fabric/library/parked.h"

namespace braid::fabric {

inline constexpr uint64_t kBusyNs = 100'000;  ///< after an event the thread polls for so long
/// The pause between looks when nothing happens, if there is no descriptor to wait for.
inline constexpr auto kQuiet = std::chrono::microseconds(400);

/// A caller whose wait was met, or whose limit has passed, usually waits again within this time.
/// The thread is not woken for the time between: waking it would cost both more than the look that
/// the thread makes within kQuiet anyway.
inline constexpr uint64_t kComesBackNs = 100'000;

/// For so long after two callers have waited at once the thread drives: a caller that leaves would
/// have to wake the next one.
inline constexpr uint64_t kSharedNs = 1'000'000;

using Lock = std::unique_lock<DelegatingMutex>;

/// A caller that waits drives the engine itself, and so notices events soonest. If nothing happens
/// for so long, it sleeps, and the thread drives. Large writes may end at longer intervals, and
/// each sleep would delay the next write. So if a driver has gone to sleep shortly before an event,
/// the next ones have twice the patience. Pure.
class Patience {
 public:
  static constexpr uint64_t kMinNs = 200'000;
  static constexpr uint64_t kMaxNs = 2'000'000;
  uint64_t ns() const { return patience_ns_; }
  /// A driver sleeps.
  void gave_up(uint64_t now_ns) { gave_up_ns_ = now_ns; }
  void happened(uint64_t now_ns) {
    if (gave_up_ns_ == 0) return;
    const bool was_soon = now_ns - gave_up_ns_ + patience_ns_ < kMaxNs;
    patience_ns_ = was_soon ? std::min(2 * patience_ns_, kMaxNs) : kMinNs;
    gave_up_ns_ = 0;
  }

 private:
  uint64_t patience_ns_ = kMinNs;
  uint64_t gave_up_ns_ = 0;  // 0: nobody has, or something has happened since
};

/// A caller that waits.
struct Sleeper {
  /// What it found when it came, or kSleeps: nothing yet.
  enum class Found { kMet, kOver, kDrives, kSleeps };
  std::function<bool()> is_met;
  Parked woken;  ///< it has found something, or its wait is met, or the end has begun
  Found found = Found::kSleeps;
  bool has_come = false;  ///< its wait is met; `is_met` may have consumed what it was for
  std::exception_ptr thrown = nullptr;  ///< by `is_met`, or on arrival
};

/// The state that waiting callers and the thread share. What is not atomic is under the mutex.
class Drivers {
 public:
  /// True if a caller drives the engine, or one that has left usually comes back.
  bool is_driven(uint64_t now_ns) const { return is_driving || now_ns < left_ns + kComesBackNs; }
  using Found = Sleeper::Found;
  /// A caller is about to wait. It drives if it may and nobody else waits; otherwise it sleeps,
  /// once it is among the sleepers.
  Found receive(Sleeper& sleeper, uint64_t end_ns, bool may_drive) {
    if (sleeper.is_met()) return Found::kMet;
    if (is_ending) return Found::kOver;
    const uint64_t now_ns = monotonic_ns();
    const bool is_alone = !is_driving && sleepers.empty();
    if (!is_alone) shared_ns_ = now_ns;
    if (may_drive && is_alone && now_ns >= shared_ns_ + kSharedNs) {
      is_driving = true;
      return Found::kDrives;
    }
    if (now_ns >= end_ns) return Found::kOver;
    if (!is_driving && left_ns.exchange(0) != 0) wake_thread();
    return Found::kSleeps;
  }
  /// The caller that drives leaves. The thread drives if somebody waits. Otherwise it first leaves
  /// time for this caller to come back, if it usually does.
  void leave(bool comes_back) {
    const bool is_left_alone = comes_back && sleepers.empty();
    has_driver_left = true;
    left_ns = is_left_alone ? monotonic_ns() : 0;
    is_driving = false;
    if (!is_left_alone) wake_thread();
  }
  /// Something has happened. Wakes only the callers whose wait is met.
  void tell() {
    std::erase_if(sleepers, [](Sleeper* sleeper) {
      if (!has_news(*sleeper)) return false;
      sleeper->woken.release();
      return true;
    });
  }
  void end() {
    is_ending = true;
    wake_thread();
    for (Sleeper* sleeper : std::exchange(sleepers, {})) sleeper->woken.release();
  }
  /// The thread waits without the mutex, for kQuiet or until it is to drive.
  void pause() {
    std::unique_lock lock(pausing_);
    changed_.wait_for(lock, kQuiet);
  }

  std::atomic<bool> is_driving = false;  ///< a caller drives the engine
  std::atomic<uint64_t> left_ns = 0;     ///< when the last driver left that usually comes back
  std::atomic<bool> is_ending = false;
  /// A driver has left, and `follow_up` has not been called since. What would have woken a sleeping
  /// thread is used up, since the driver has looked itself.
  bool has_driver_left = false;
  std::vector<Sleeper*> sleepers;
  Patience patience;

 private:
  static bool has_news(Sleeper& sleeper) {
    try {
      return sleeper.has_come = sleeper.is_met();
    } catch (...) {
      sleeper.thrown = std::current_exception();
      return true;
    }
  }
  void wake_thread() {
    { const std::lock_guard lock(pausing_); }
    changed_.notify_all();
  }

  uint64_t shared_ns_ = 0;  // when two callers last waited at once
  std::mutex pausing_;
  std::condition_variable changed_;  // nobody drives any more, or the end has begun
};

/// Between two looks of a loop. Threads that share its CPU come first if nothing has happened.
inline void serve_callers(Lock& lock, bool is_busy) {
  if (is_busy) return lock.mutex()->serve();
  lock.unlock();
  sched_yield();
  lock.lock();
}

/// The thread's loop, until the end: calls `step(now_ns)` while no caller drives, and `rest` when
/// nothing has happened for a while. Both are called under the mutex, which `rest` gives back if it
/// sleeps. `step` returns whether there may be more to do at once. Its times never go back: each is
/// read under the mutex.
template <typename Step, typename Rest>
void look_until_end(DelegatingMutex& mutex, Drivers& drivers, const Step& step, const Rest& rest) {
  uint64_t happened_ns = 0;
  bool has_rested = false;  // a deadline may have passed without anything to do
  while (!drivers.is_ending) {
    if (drivers.is_driven(monotonic_ns())) {
      drivers.pause();
      continue;
    }
    Lock lock(mutex);
    for (uint64_t now_ns = monotonic_ns(); !drivers.is_ending && !drivers.is_driven(now_ns);
         now_ns = monotonic_ns()) {
      const bool is_busy = step(now_ns);
      if (is_busy) drivers.patience.happened(happened_ns = now_ns);
      if (is_busy || has_rested) drivers.tell();
      has_rested = !is_busy && now_ns > happened_ns + kBusyNs;
      if (has_rested) rest(lock);  // which may return at once
      serve_callers(lock, is_busy);
    }
    has_rested = false;
  }
}

/// Marks the scope in which a caller drives. Destroyed under the mutex. The caller leaves also when
/// it throws.
class Driving {
 public:
  explicit Driving(Drivers& drivers) : drivers_(drivers) {}
  ~Driving() { drivers_.leave(comes_back_); }
  Driving(const Driving&) = delete;
  Driving& operator=(const Driving&) = delete;
  /// This caller usually waits again soon.
  void will_come_back() { comes_back_ = true; }

 private:
  Drivers& drivers_;
  bool comes_back_ = false;
};

/// A caller drives until `is_met`, or `end_ns`, or until nothing has happened for a while.
template <typename IsMet, typename Step>
bool drive(Lock& lock, Drivers& drivers, uint64_t end_ns, const IsMet& is_met, const Step& step) {
  uint64_t now_ns = monotonic_ns(), happened_ns = now_ns;
  Driving driving(drivers);
  for (bool has_looked = false; !is_met(); has_looked = true) {
    const bool is_late = has_looked && now_ns >= end_ns;
    if (is_late) driving.will_come_back();
    if (is_late || drivers.is_ending) return false;
    if (now_ns > happened_ns + drivers.patience.ns()) {
      drivers.patience.gave_up(now_ns);
      return false;
    }
    const bool is_busy = step(now_ns);
    if (is_busy) drivers.tell();
    serve_callers(lock, is_busy);
    now_ns = monotonic_ns();
    if (is_busy) drivers.patience.happened(happened_ns = now_ns);
  }
  driving.will_come_back();
  return true;
}

/// Under the mutex, perhaps in another thread. The sleeper may be gone at the end: it is woken, or
/// listed so that others wake it.
template <typename FollowUp>
void arrive(Drivers& drivers, Sleeper& sleeper, uint64_t end_ns, bool may_drive,
            const FollowUp& follow_up) {
  using Found = Sleeper::Found;
  try {
    Found found = drivers.receive(sleeper, end_ns, may_drive);
    if (found != Found::kDrives) follow_up();
    if (found == Found::kSleeps && !sleeper.is_met()) return drivers.sleepers.push_back(&sleeper);
    sleeper.found = found == Found::kSleeps ? Found::kMet : found;
  } catch (...) {
    sleeper.thrown = std::current_exception();
  }
  sleeper.woken.release();
}

/// A caller waits until `is_met`, or `end_ns`, or the end of the service. One caller drives at a
/// time; the others sleep. False: the wait was not met. The three functions are called under the
/// mutex, perhaps in another thread; `step` as look_until_end calls it; `follow_up` before the
/// caller sleeps, and at the end, also if another one throws while the caller drives.
template <typename IsMet, typename Step, typename FollowUp>
bool wait_until(DelegatingMutex& mutex, Drivers& drivers, uint64_t end_ns, const IsMet& is_met,
                const Step& step, const FollowUp& follow_up) {
  using Found = Sleeper::Found;
  constexpr uint64_t kLongestSleepNs = 1'000'000'000;
  for (bool may_drive = true;; may_drive = false) {
    Sleeper sleeper;
    sleeper.is_met = is_met;
    // It waits once, for whoever meets it, and not before that for its arrival.
    const auto arrives = [&] { arrive(drivers, sleeper, end_ns, may_drive, follow_up); };
    auto errand = DelegatingMutex::errand_of(arrives, nullptr);
    mutex.hand_in(errand);
    if (!sleeper.woken.await(std::min(end_ns, monotonic_ns() + kLongestSleepNs)))
      mutex.run([&] { std::erase(drivers.sleepers, &sleeper); });
    if (sleeper.thrown != nullptr) std::rethrow_exception(sleeper.thrown);
    if (sleeper.has_come || sleeper.found == Found::kMet) return true;
    if (sleeper.found == Found::kOver) return false;
    if (sleeper.found != Found::kDrives) continue;
    Lock lock(mutex);
    bool met = false;
    try {
      met = drive(lock, drivers, end_ns, is_met, step);
    } catch (...) {
      follow_up();
      throw;
    }
    if (met) return follow_up(), true;
  }
}

}  // namespace braid::fabric
