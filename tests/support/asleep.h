// Whether threads wait in the kernel, as one does whose call is held up, or who has nothing to do.
#pragma once

#include <sys/types.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <utility>

#include "support/eventually.h"

namespace braid::test {

/// Of this process; by gettid. One that waits for a core is not asleep.
inline bool is_asleep(pid_t thread) {
  std::string line;
  std::getline(std::ifstream("/proc/self/task/" + std::to_string(thread) + "/stat"), line);
  const size_t name_end = line.rfind(") ");
  return name_end != std::string::npos && line[name_end + 2] == 'S';
}

inline bool are_others_asleep() {
  const std::filesystem::directory_iterator threads("/proc/self/task");
  return std::all_of(begin(threads), end(threads), [](const auto& each) {
    const pid_t thread = std::stoi(each.path().filename());
    return thread == gettid() || is_asleep(thread);
  });
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
