#include "kv/host_memory.h"

#include <algorithm>
#include <fstream>
#include <string>

namespace braid::kv {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kNoLimit = ~uint64_t{0};

// The number behind a name, in a file of lines "name number ..."; `otherwise` without such a line.
uint64_t number_of(const fs::path& path, const std::string& name, uint64_t otherwise) {
  std::ifstream file(path);
  std::string word;
  for (std::string line; file >> word; std::getline(file, line)) {
    if (word != name) continue;
    uint64_t number = 0;
    return file >> number ? number : otherwise;
  }
  return otherwise;
}

// A file that is one number. "max" is none.
uint64_t number_in(const fs::path& path, uint64_t otherwise) {
  std::ifstream file(path);
  uint64_t number = 0;
  return file >> number ? number : otherwise;
}

// The names of one version's files.
struct Names {
  const char *limit, *used, *inactive_files, *active_files;
};
constexpr Names kVersion1 = {"memory.limit_in_bytes", "memory.usage_in_bytes",
                             "total_inactive_file", "total_active_file"};
constexpr Names kVersion2 = {"memory.max", "memory.current", "inactive_file", "active_file"};

// Cached files count as used, and are given up for whoever needs memory.
uint64_t left_in(const fs::path& group, const Names& names) {
  const uint64_t limit = number_in(group / names.limit, kNoLimit);
  if (limit == kNoLimit) return kNoLimit;
  const uint64_t used = number_in(group / names.used, 0);
  const fs::path statistics = group / "memory.stat";
  const uint64_t cached =
      number_of(statistics, names.inactive_files, 0) + number_of(statistics, names.active_files, 0);
  const uint64_t kept = used - std::min(used, cached);
  return limit - std::min(limit, kept);
}

// Each group is limited by those that it lies in. In a container only the inner ones are there.
uint64_t left_up_from(const fs::path& mount, fs::path group, const Names& names) {
  uint64_t left = left_in(mount, names);
  for (group = group.relative_path(); !group.empty(); group = group.parent_path())
    left = std::min(left, left_in(mount / group, names));
  return left;
}

bool has_memory(const std::string& controllers) {
  return ("," + controllers + ",").find(",memory,") != std::string::npos;
}

// Lines "number:controllers:path". Version 2 names no controllers.
uint64_t left_in_groups(const fs::path& root) {
  uint64_t left = kNoLimit;
  const fs::path mount = root / "sys/fs/cgroup";
  std::ifstream file(root / "proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {
    const size_t first = line.find(':');
    const size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const fs::path group = line.substr(second + 1);
    if (controllers.empty())
      left = std::min(left, left_up_from(mount, group, kVersion2));
    else if (has_memory(controllers))
      left = std::min(left, left_up_from(mount / "memory", group, kVersion1));
  }
  return left;
}

}  // namespace

uint64_t host_memory_left_bytes(const fs::path& root) {
  const uint64_t kib = number_of(root / "proc/meminfo", "MemAvailable:", kNoLimit >> 10);
  return std::min(kib << 10, left_in_groups(root));
}

}  // namespace braid::kv
