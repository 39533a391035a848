// Whether threads wait in the kernel, as one does whose call is held up, or who has nothing to do.
#pragma once

#include <sys/types.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>

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

}  // namespace braid::test
