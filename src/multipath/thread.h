// A thread inside another program's process: it has the library's name, and the program's signals
// are not delivered to it (base/blocked_signals.h).
#pragma once

#include <pthread.h>

namespace braid::multipath {

class Thread {
 public:
  /// Runs `body(argument)` there. False: the process may not have another thread. Once only.
  bool start(void (*body)(void*), void* argument);
  void join();

 private:
  static void* run(void* self);

  void (*body_)(void*) = nullptr;
  void* argument_ = nullptr;
  bool has_started_ = false;
  pthread_t thread_{};
};

}  // namespace braid::multipath
