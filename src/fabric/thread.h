// Threads inside somebody else's process.
#pragma once

#include <pthread.h>

#include <thread>
#include <utility>

#include "base/blocked_signals.h"

namespace braid::fabric {

/// A thread that bears the library's name. The program's signals are not delivered to it.
template <typename Body>
std::thread start_thread(Body&& body) {
  const BlockedSignals blocked;  // inherited
  std::thread thread(std::forward<Body>(body));
  pthread_setname_np(thread.native_handle(), "braid");
  return thread;
}

}  // namespace braid::fabric
