// The only thread of braid that calls the driver, for one engine. It opens the relays that copies
// have asked for, while the program goes on: the driver takes a tenth of a second for a context,
// and more if several processes start at once. Copies are native until all are open. Then the
// thread sleeps. It wakes up when copies of another GPU ask for relays, to answer what the process
// waits for (multipath/process_table.h), to allocate again the buffers that relays freed, and to
// show the statistics at an interval (reporter.h).
//
// Threads: any, except for `start` and the destructor.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <chrono>
#include <mutex>
#include <semaphore>

#include "multipath/engine.h"
#include "multipath/thread.h"

namespace braid::preload {

class EngineThread {
 public:
  /// Called by the thread that opens relays, with no lock that the program's calls wait for: the
  /// driver may make that thread wait for a lock that the program holds.
  struct Events {
    /// All requested relays are open, and copies do not use them yet.
    void (*relays_opened)(multipath::Engine& engine);
    /// Something could not be opened.
    void (*problem)(const char* message) noexcept;
    /// There is not enough memory: copies stay native.
    void (*failed)() noexcept;
  };

  /// The engine must outlive this.
  EngineThread(multipath::Engine& engine, const Events& events)
      : engine_(engine), events_(events) {}
  /// Waits for the step that is under way.
  ~EngineThread() { end(); }
  EngineThread(const EngineThread&) = delete;
  EngineThread& operator=(const EngineThread&) = delete;

  /// Runs `body(this)`, which calls `serve`, in a new thread. False: the process may not have
  /// another. Once only.
  bool start(void (*body)(void* self)) noexcept;
  void serve() noexcept;

  /// Opens the relays of all GPUs in the calling thread.
  void open_relays() noexcept;

  /// Wakes the thread for new work, if there is a thread.
  void wake() noexcept;

  /// Ends the thread for good, within this limit.
  void end(std::chrono::seconds limit = std::chrono::hours(24)) noexcept;

 private:
  bool open_step() noexcept;
  void serve_requests();
  bool is_of_this_process() const noexcept;

  multipath::Engine& engine_;
  const Events events_;
  multipath::Thread thread_;
  std::atomic<pid_t> pid_{0};  // the process that has the thread: a forked child has none
  std::atomic<bool> stops_{false};
  std::atomic<bool> has_failed_{false};
  std::mutex opening_;  // held by the one thread that opens relays
  std::binary_semaphore ended_{0};
};

}  // namespace braid::preload
