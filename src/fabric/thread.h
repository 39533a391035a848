// Threads inside somebody else's process.
#pragma once

#include <pthread.h>
#include <signal.h>

#include <thread>
#include <utility>

namespace braid::fabric {

/// A thread that bears the library's name. Signals are the program's: none is delivered to it.
template <typename Body>
std::thread start_thread(Body&& body) {
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);  // inherited
  struct Restore {
    const sigset_t& mask;
    ~Restore() { pthread_sigmask(SIG_SETMASK, &mask, nullptr); }
  } restore{before};
  std::thread thread(std::forward<Body>(body));
  pthread_setname_np(thread.native_handle(), "braid");
  return thread;
}

}  // namespace braid::fabric
