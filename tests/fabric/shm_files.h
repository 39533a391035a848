// What processes have in /dev/shm.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <string>
#include <vector>

namespace braid::fabric::test {

/// libfabric's files, named by the process, and their doorbells.
inline std::vector<std::string> files_of(pid_t process) {
  std::vector<std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator("/dev/shm"))
    if (entry.path().string().find(std::to_string(process) + ":") != std::string::npos)
      files.push_back(entry.path());
  return files;
}

inline void remove_files_of(pid_t process) {
  for (const std::string& file : files_of(process)) std::filesystem::remove(file);
}

}  // namespace braid::fabric::test
