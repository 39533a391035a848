// What the kernel tells of a process in /proc. Source: proc(5).
#pragma once

#include <sys/types.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

namespace braid {

/// FOLDER/stat, from its field `first` on, which is behind the process's name: 3 is the state.
/// `folder`: /proc/PROCESS, or one of a thread. Empty: there is no such process, or it is hidden.
inline std::istringstream stat_fields(const std::filesystem::path& folder, int first) {
  std::ifstream file(folder / "stat");
  std::string line;
  std::getline(file, line);
  const size_t after_name = line.rfind(')');  // a name may have blanks and parentheses
  if (after_name == std::string::npos) return {};
  std::istringstream fields(line.substr(after_name + 1));
  std::string skipped;
  for (int number = 3; number < first; ++number) fields >> skipped;
  return fields;
}

inline std::istringstream stat_fields(uint32_t process, int first) {
  return stat_fields("/proc/" + std::to_string(process), first);
}

/// Of a thread of this process, by gettid: 'R' for one that runs or waits for a core, 'S' for one
/// that sleeps. 0: there is no such thread.
inline char thread_state(pid_t thread) {
  char state = 0;
  stat_fields("/proc/self/task/" + std::to_string(thread), 3) >> state;
  return state;
}

/// True if all threads of this process but the caller have a state that is `wanted`.
template <typename Wanted>
bool are_other_threads(const Wanted& wanted) {
  std::error_code error;
  const std::filesystem::directory_iterator threads("/proc/self/task", error);
  return std::all_of(begin(threads), end(threads), [&](const auto& each) {
    const pid_t thread = std::stoi(each.path().filename());
    return thread == gettid() || wanted(thread_state(thread));
  });
}

}  // namespace braid
