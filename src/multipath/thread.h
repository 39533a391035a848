// A thread inside somebody else's process: it bears the library's name, no signal is delivered to
// it, its sleeps are as short as asked for, and the CPU time it spends can be read.
#pragma once

#include <pthread.h>

#include <cstdint>

namespace braid::multipath {

class Thread {
 public:
  /// Runs `body(argument)` there. False when the process may not have another thread. Once only.
  bool start(void (*body)(void*), void* argument);
  bool has_started() const { return has_started_; }
  void join();

  uint64_t cpu_time_ns() const;

 private:
  static void* run(void* self);

  void (*body_)(void*) = nullptr;
  void* argument_ = nullptr;
  bool has_started_ = false;
  pthread_t thread_{};
};

}  // namespace braid::multipath
