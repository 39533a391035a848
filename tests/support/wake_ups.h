// How often the threads of this process wake.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <thread>

namespace braid::test {

/// How often each thread of this process has gone to sleep so far, by its number.
inline std::map<std::string, uint64_t> sleeps_of_threads() {
  std::map<std::string, uint64_t> sleeps;
  for (const auto& thread : std::filesystem::directory_iterator("/proc/self/task")) {
    std::ifstream status(thread.path() / "status");
    for (std::string line; std::getline(status, line);)
      if (line.starts_with("voluntary_ctxt_switches:"))
        sleeps[thread.path().filename()] = std::stoull(line.substr(line.find(':') + 1));
  }
  return sleeps;
}

/// How often the thread wakes that wakes most often, in a second in which this one sleeps.
inline uint64_t most_wake_ups_in_a_second() {
  const auto before = sleeps_of_threads();
  std::this_thread::sleep_for(std::chrono::seconds(1));
  uint64_t most = 0;
  for (const auto& [thread, count] : sleeps_of_threads())
    if (const auto known = before.find(thread); known != before.end())
      most = std::max(most, count - known->second);
  return most;
}

}  // namespace braid::test
