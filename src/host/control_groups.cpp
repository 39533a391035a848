#include "host/control_groups.h"

#include <fstream>
#include <string>

namespace braid {
namespace {

namespace fs = std::filesystem;

bool names(const std::string& controllers, std::string_view controller) {
  return ("," + controllers + ",").find("," + std::string(controller) + ",") != std::string::npos;
}

// The paths are those of the host. In a container the folder at the top is that of its own group.
void add_up_from(const fs::path& mount, fs::path group, int version,
                 std::vector<ControlGroup>& all) {
  all.push_back({mount, version});
  for (group = group.relative_path(); !group.empty(); group = group.parent_path())
    all.push_back({mount / group, version});
}

}  // namespace

// Lines "number:controllers:path". Version 2 names no controllers.
std::vector<ControlGroup> control_groups(std::string_view controller, const fs::path& root) {
  std::vector<ControlGroup> all;
  const fs::path mount = root / "sys/fs/cgroup";
  std::ifstream file(root / "proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {
    const size_t first = line.find(':');
    const size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const fs::path group = line.substr(second + 1);
    if (controllers.empty())
      add_up_from(mount, group, 2, all);
    else if (names(controllers, controller))
      add_up_from(mount / controller, group, 1, all);
  }
  return all;
}

}  // namespace braid
