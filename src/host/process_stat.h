// What the kernel tells of a process in /proc. Source: proc(5).
#pragma once

#include <cstdint>
#include <fstream>
#include <sstream>
#include <string>

namespace braid {

/// /proc/PROCESS/stat, from its field `first` on, which is behind the process's name: 3 is the
/// state. Empty: there is no such process, or it is hidden.
inline std::istringstream stat_fields(uint32_t process, int first) {
  std::ifstream file("/proc/" + std::to_string(process) + "/stat");
  std::string line;
  std::getline(file, line);
  const size_t after_name = line.rfind(')');  // a name may have blanks and parentheses
  if (after_name == std::string::npos) return {};
  std::istringstream fields(line.substr(after_name + 1));
  std::string skipped;
  for (int number = 3; number < first; ++number) fields >> skipped;
  return fields;
}

}  // namespace braid
