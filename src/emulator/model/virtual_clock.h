// Whose time it is: the program's virtual time, and that of threads which act by the clock
// (base/clock.h). Such a thread has a time of its own while it holds the clock, so that what it
// does and what the program does meanwhile carry the same times whichever the machine runs first.
// The world's lock covers all of it.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <utility>

#include "emulator/simulator/simulation.h"

namespace braid::emulator {

class VirtualClock {
 public:
  struct Sleeper {
    bool awake = false;
    std::condition_variable woken;  ///< with the world's lock
  };

  explicit VirtualClock(Simulation& simulation) : simulation_(simulation) {}

  /// The calling thread's virtual time, moved by its calls and by waiting: its own while it holds
  /// the clock, else the program's.
  Time now();
  void spend_us(double us);
  void wait_until(Time when);

  /// Counts a hold, from the calling thread's time on. The next thread known to act by the clock
  /// that holds none takes it up, by `take_up`.
  void hold();
  /// The calling thread acts by the clock; it takes up the oldest hold that nobody has.
  void join();
  /// The same for a thread that has joined before; nothing for any other.
  void take_up();
  void release();

  /// Lets go of the calling thread's hold until its time has moved by `duration`. Whoever runs the
  /// simulation then wakes the sleeper, and time stands still again. Sleepers that are due at the
  /// same time wake one after another, oldest thread first.
  std::shared_ptr<Sleeper> fall_asleep(Time duration);
  size_t sleepers() const { return sleepers_.size(); }

  /// For a driver call that waits: the calling thread's hold no longer counts. False if it has
  /// none.
  bool let_go();
  void hold_again();

  bool calling_thread_holds() const;
  /// Somebody holds the clock, and patience with that has not run out.
  bool stands_still();

 private:
  void count_hold();
  void drop_hold();
  void wake_first();

  Simulation& simulation_;
  Time program_ = 0;
  int holds_ = 0;
  int given_up_ = 0;         // holds that patience has run out with
  std::deque<Time> handed_;  // holds that no thread has taken up yet: since when
  std::chrono::steady_clock::time_point changed_;  // when a hold was last taken or dropped
  std::map<std::pair<Time, pid_t>, std::shared_ptr<Sleeper>> sleepers_;
};

}  // namespace braid::emulator
