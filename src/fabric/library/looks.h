// The loops that drive a service's engine: its own thread drives it, or a caller that waits for
// something. The services of the fabric and of transfers share these loops.
#pragma once

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <vector>

#include "base/clock.h"

namespace braid::fabric {

inline constexpr uint64_t kBusyNs = 100'000;  ///< after an event the thread polls for so long
/// The pause between looks when nothing happens, if there is no descriptor to wait for.
inline constexpr auto kQuiet = std::chrono::microseconds(400);

/// A caller whose wait was met, or whose limit has passed, usually waits again within this time.
/// The thread is not woken for the time between: waking it would cost both more than the look that
/// the thread makes within kQuiet anyway.
inline constexpr uint64_t kComesBackNs = 100'000;

/// A caller that waits while somebody else drives the engine.
struct Sleeper {
  std::function<bool()> is_met;
  std::condition_variable woken;
  bool is_up = false;     ///< its wait is met, or it is to drive
  bool has_come = false;  ///< its wait is met; `is_met` is not called again, since it may consume
};

/// A mutex that is free for a moment between two looks goes to whoever is awake: the loop itself. A
/// caller that sleeps for the mutex would be kept out for long. So the loop leaves the mutex alone
/// when nobody has got in for a while. Nobody may come, since the system runs others first: then
/// the next while is twice as long. Pure.
class Doorkeeper {
 public:
  static constexpr uint64_t kKeptOutNs = 50'000;
  static constexpr uint64_t kPatienceMaxNs = 10'000'000;
  /// `entering` callers want the mutex, and `entered` callers have got it so far. True: the loop is
  /// to leave the mutex alone until one of them has it.
  bool lets_in(int entering, uint64_t entered, uint64_t now_ns) {
    if (entering == 0 || entered != entered_ || since_ns_ == 0) {
      patience_ns_ = kKeptOutNs;
      since_ns_ = entering == 0 ? 0 : now_ns;
      entered_ = entered;
      return false;
    }
    return now_ns >= since_ns_ + patience_ns_;
  }
  /// The loop has left the mutex alone in vain.
  void nobody_came(uint64_t now_ns) {
    since_ns_ = now_ns;
    patience_ns_ = std::min(2 * patience_ns_, kPatienceMaxNs);
  }

 private:
  uint64_t entered_ = 0;
  uint64_t since_ns_ = 0;  // since when the same callers wait; 0: nobody waits
  uint64_t patience_ns_ = kKeptOutNs;
};

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

/// The state that waiting callers and the thread share.
struct Drivers {
  std::atomic<int> waiting = 0;  ///< 1 while a caller drives the engine
  uint64_t left_ns = 0;          ///< when the last driver left that usually comes back
  /// A driver has left, and `follow_up` has not been called since. What would have woken a sleeping
  /// thread is used up, since the driver has looked itself.
  bool has_driver_left = false;
  std::condition_variable changed;  ///< nobody drives any more, or the end has begun
  std::vector<Sleeper*> sleepers;   ///< under the mutex
  std::atomic<bool> is_ending = false;
  std::atomic<int> entering = 0;      ///< callers that want the mutex
  std::atomic<uint64_t> entered = 0;  ///< callers that wanted it and have got it
  Doorkeeper doorkeeper;              ///< under the mutex
  Patience patience;                  ///< under the mutex

  /// Locks the mutex for a caller.
  std::unique_lock<std::mutex> enter(std::mutex& mutex) {
    std::unique_lock lock(mutex, std::try_to_lock);
    if (lock.owns_lock()) return lock;
    ++entering;
    lock.lock();
    has_entered();
    return lock;
  }
  void has_entered() {
    --entering;
    ++entered;
  }
  /// Between two looks of a loop, of which the last began at `now_ns`.
  void let_callers_in(std::unique_lock<std::mutex>& lock, uint64_t now_ns, bool yields) {
    constexpr uint64_t kLongestNs = 1'000'000;
    const uint64_t before = entered;
    const bool lets_in = doorkeeper.lets_in(entering, before, now_ns);
    lock.unlock();
    if (yields) sched_yield();
    const uint64_t end_ns = lets_in ? monotonic_ns() + kLongestNs : 0;
    while (lets_in && entered == before && monotonic_ns() < end_ns) sched_yield();
    lock.lock();
    if (lets_in && entered == before) doorkeeper.nobody_came(monotonic_ns());
  }

  /// Under the mutex: something has happened. Wakes only the callers whose wait is met.
  void tell() {
    for (Sleeper* sleeper : sleepers)
      if (!sleeper->is_up && has_news(*sleeper)) wake(*sleeper);
  }
  /// Called by the caller that drives, under the mutex. If it usually comes back, another waiting
  /// caller drives next; if there is none, the thread first leaves time for this caller to come
  /// back. If not, the thread drives.
  void leave(bool comes_back) {
    waiting = 0;
    has_driver_left = true;
    left_ns = comes_back ? monotonic_ns() : 0;
    const auto next = std::find_if(sleepers.begin(), sleepers.end(),
                                   [](const Sleeper* sleeper) { return !sleeper->is_up; });
    if (comes_back && next != sleepers.end())
      wake(**next);
    else if (!comes_back)
      changed.notify_all();
  }
  /// Under the mutex.
  void end() {
    is_ending = true;
    changed.notify_all();
    for (Sleeper* sleeper : sleepers) wake(*sleeper);
  }

 private:
  /// If `is_met` throws here, the waiting caller calls it again, and it throws there.
  static bool has_news(Sleeper& sleeper) {
    try {
      return sleeper.has_come = sleeper.is_met();
    } catch (...) {
      return true;
    }
  }
  void wake(Sleeper& sleeper) {
    if (sleeper.is_up) return;
    sleeper.is_up = true;
    ++entering;
    sleeper.woken.notify_one();
  }
};

/// The thread's loop, until the end: calls `step(now_ns)` while no caller drives, and `rest` when
/// nothing has happened for a while. Both are called under the mutex, which `rest` gives back if it
/// sleeps. `step` returns whether there may be more to do at once. Its times never go back: each is
/// read under the mutex.
template <typename Step, typename Rest>
void look_until_end(std::mutex& mutex, Drivers& drivers, const Step& step, const Rest& rest) {
  uint64_t happened_ns = 0;
  bool is_busy = false;
  bool has_rested = false;  // a deadline may have passed without anything to do
  std::unique_lock lock(mutex);
  while (!drivers.is_ending) {
    uint64_t now_ns = monotonic_ns();
    if (is_busy) drivers.patience.happened(happened_ns = now_ns);
    const bool is_driven = drivers.waiting > 0 || now_ns < drivers.left_ns + kComesBackNs;
    is_busy = !is_driven && step(now_ns);
    if (is_busy || has_rested) drivers.tell();
    has_rested = !is_driven && !is_busy && now_ns > happened_ns + kBusyNs;
    if (is_driven) {
      drivers.changed.wait_for(lock, kQuiet);
      continue;
    }
    if (has_rested) {
      rest(lock);
      now_ns = monotonic_ns();
    }
    drivers.let_callers_in(lock, now_ns, !has_rested);
  }
}

/// Marks the scope in which a caller drives. Made and destroyed under the mutex. The caller leaves
/// also when it throws.
class Driving {
 public:
  explicit Driving(Drivers& drivers) : drivers_(drivers) { drivers_.waiting = 1; }
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
bool drive(std::unique_lock<std::mutex>& lock, Drivers& drivers, uint64_t end_ns,
           const IsMet& is_met, const Step& step) {
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
    drivers.let_callers_in(lock, now_ns, !is_busy);
    now_ns = monotonic_ns();
    if (is_busy) drivers.patience.happened(happened_ns = now_ns);
  }
  driving.will_come_back();
  return true;
}

/// A caller, which holds the lock, waits until `is_met`, or `end_ns`, or the end of the service.
/// One caller drives at a time; the others sleep. False: the wait was not met. The three functions
/// are called under the mutex; `step` as look_until_end calls it; `follow_up` before the caller
/// sleeps, and at the end, also if another one throws while the caller drives.
template <typename IsMet, typename Step, typename FollowUp>
bool wait_until(std::unique_lock<std::mutex>& lock, Drivers& drivers, uint64_t end_ns,
                const IsMet& is_met, const Step& step, const FollowUp& follow_up) {
  constexpr uint64_t kLongestSleepNs = 1'000'000'000;
  Sleeper sleeper;
  sleeper.is_met = is_met;
  bool met = is_met(), may_drive = true;
  while (!met && !drivers.is_ending) {
    if (may_drive && drivers.waiting == 0) {
      try {
        met = drive(lock, drivers, end_ns, is_met, step);
      } catch (...) {
        follow_up();
        throw;
      }
      if (met) break;
    }
    follow_up();
    const uint64_t now_ns = monotonic_ns();
    if (now_ns >= end_ns) break;
    sleeper.is_up = false;
    drivers.sleepers.push_back(&sleeper);
    sleeper.woken.wait_for(lock,
                           std::chrono::nanoseconds(std::min(end_ns - now_ns, kLongestSleepNs)),
                           [&] { return sleeper.is_up; });
    if (sleeper.is_up) drivers.has_entered();
    std::erase(drivers.sleepers, &sleeper);
    met = sleeper.has_come || is_met();
    may_drive = sleeper.is_up;  // the driver woke it; otherwise nothing has happened
  }
  follow_up();
  return met;
}

}  // namespace braid::fabric
