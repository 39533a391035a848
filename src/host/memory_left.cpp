#include "host/memory_left.h"

#include <algorithm>
#include <fstream>
#include <sstream>
#include <string>

#include "base/units.h"
#include "host/control_groups.h"

namespace braid {
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
  const uint64_t cached = number_of(statistics, names.inactive_files, 0) +
                          number_of(statistics, names.active_files, 0) +
                          number_of(statistics, "slab_reclaimable", 0);
  const uint64_t kept = used - std::min(used, cached);
  return limit - std::min(limit, kept);
}

// ZFS's cache shrinks for whoever needs memory, and MemAvailable leaves it out. Lines of its file
// are "name type number".
uint64_t zfs_cache_bytes(const fs::path& root) {
  std::ifstream file(root / "proc/spl/kstat/zfs/arcstats");
  std::string name, type;
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    uint64_t number = 0;
    if (words >> name >> type >> number && name == "size") return number;
  }
  return 0;
}

uint64_t left_in_groups(const fs::path& root) {
  uint64_t left = kNoLimit;
  for (const ControlGroup& group : control_groups("memory", root))
    left = std::min(left, left_in(group.folder, group.version == 2 ? kVersion2 : kVersion1));
  return left;
}

}  // namespace

uint64_t memory_left_bytes(const fs::path& root) {
  const uint64_t kib = number_of(root / "proc/meminfo", "MemAvailable:", kNoLimit >> 10);
  return std::min(kib << 10, left_in_groups(root));
}

Status check_memory_left(uint64_t size_bytes, const fs::path& root) {
  const fs::path kernel = root / "proc/meminfo";
  const uint64_t kib =
      number_of(kernel, "MemAvailable:", kNoLimit >> 11) + number_of(kernel, "SwapFree:", 0);
  const uint64_t of_kernel = (kib << 10) + zfs_cache_bytes(root);
  const uint64_t left = std::min(of_kernel, left_in_groups(root));
  if (size_bytes <= left) return {};
  return Status::error(
      "there is no memory of " + format_size(size_bytes) + ": " +
      (left < of_kernel ? "this process's control groups have " : "the host has ") +
      format_size(left) + " left");
}

}  // namespace braid
