// Looks after transfers by kernels while some are under way: nothing else in the process would see
// that a relay's GPU has failed with slices in its hands, since the kernels that are left cannot
// know, and the program waits at the gate (rescue.h). One thread, which starts with the first such
// transfer and sleeps when there is none; a transfer that ends before the first look costs nothing
// but a wake-up.
//
// Threads: `begin` may be called from any thread at once. Time is the driver table's clock.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <mutex>

#include "cuda/driver.h"
#include "multipath/thread.h"

namespace braid::multipath {

class RelayWatch {
 public:
  /// `look` is called on the watch's thread, every so often until it returns false: nothing is
  /// under way. It must not call `begin`.
  using Look = std::function<bool(uint64_t now_ns)>;

  RelayWatch(const cuda::Driver& driver, Look look);
  ~RelayWatch() { close(); }
  RelayWatch(const RelayWatch&) = delete;
  RelayWatch& operator=(const RelayWatch&) = delete;

  /// A transfer is under way. A load while the watch is awake. Without a thread (the process may
  /// not have another) relays are not watched.
  void begin() noexcept;

  /// Ends the thread, and waits for that: it may be in a look or asleep before one. `begin` may not
  /// be called any more. In a forked child the thread is the parent's.
  void close();

 private:
  void run();
  void rest();
  void wake();
  bool stops();

  const cuda::Driver& driver_;
  const Look look_;
  const pid_t pid_;
  std::mutex mutex_;                    // never held during a look
  std::atomic<bool> is_resting_{true};  // changes under the lock; the thread waits for that
  bool stops_ = false;
  Thread thread_;
};

}  // namespace braid::multipath
