// Whether threads wait in the kernel, as one does whose call is held up, or who has nothing to do.
#pragma once

#include <unistd.h>

#include <atomic>
#include <chrono>
#include <thread>
#include <utility>

#include "host/process_stat.h"
#include "support/eventually.h"

namespace braid::test {

/// Of this process; by gettid. One that waits for a core is not asleep.
inline bool is_asleep(pid_t thread) { return thread_state(thread) == 'S'; }

inline bool are_others_asleep() {
  return are_other_threads([](char state) { return state == 'S'; });
}

/// A driver may hold a thread up without letting it sleep, so that is no failure.
inline void wait_until_asleep(pid_t thread) {
  (void)eventually([&] { return is_asleep(thread); }, std::chrono::seconds(5));
}

/// A thread of this body, once it has come to where it waits.
template <typename Body>
std::thread waiting_thread(Body body) {
  std::atomic<pid_t> number{0};
  std::thread thread([&number, body = std::move(body)] {
    number = gettid();
    body();
  });
  while (number == 0) std::this_thread::yield();
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  wait_until_asleep(number);
  return thread;
}

}  // namespace braid::test
