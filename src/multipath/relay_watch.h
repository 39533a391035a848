// Looks after transfers by kernels that take long: nothing else in the process would see that a
// relay's context alone has ended with slices in its hands (by the program's reset, or by a fault
// where the driver parts contexts), since the kernels that are left cannot know, and the program
// waits at the gate (rescue.h). One thread, which sleeps while nothing is under way; a
// transfer that ends before the first look costs a wake-up at most.
//
// It goes by the machine's time, not by the driver table's clock: while no GPU fails it has no part
// in what happens, and a sleep in virtual time would make time pass for a program that computes.
//
// Threads: `begin` may be called from any thread at once.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <semaphore>

#include "cuda/driver.h"
#include "multipath/thread.h"

namespace braid::multipath {

class RelayWatch {
 public:
  /// `look` is called on the watch's thread, every so often until it returns false: nothing is
  /// under way. `now_ns`: of base/clock.h's system_clock. It must not call `begin`.
  using Look = std::function<bool(uint64_t now_ns)>;

  RelayWatch(const cuda::Driver& driver, Look look);
  ~RelayWatch() { close(); }
  RelayWatch(const RelayWatch&) = delete;
  RelayWatch& operator=(const RelayWatch&) = delete;

  /// Starts the thread, which rests. False when the process may not have another.
  bool start();

  /// A transfer is under way. A load while the watch is awake; nothing before `start`.
  void begin() noexcept;

  /// Ends the thread, and waits for that: it may be in a look. `begin` may not be called any more.
  /// In a forked child the thread is the parent's.
  void close();

 private:
  void run();
  void rest();

  const cuda::Driver& driver_;
  const Look look_;
  const pid_t pid_;
  std::atomic<bool> is_resting_{false};
  std::atomic<bool> stops_{false};
  std::counting_semaphore<> calls_{
      0};  // on the thread: one for each rest that was ended, and `close`
  Thread thread_;
};

}  // namespace braid::multipath
