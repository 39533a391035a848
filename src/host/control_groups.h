// The control groups that limit this process (cgroups(7), versions 1 and 2): a container has such
// limits.
#pragma once

#include <filesystem>
#include <string_view>
#include <vector>

namespace braid {

struct ControlGroup {
  std::filesystem::path folder;  ///< may not be there: of some, a container sees nothing
  int version = 2;
};

/// This process's groups and all that they lie in, whose limits apply too, of one controller
/// ("cpu", "memory"). `root` is the folder that has `proc` and `sys`.
std::vector<ControlGroup> control_groups(std::string_view controller,
                                         const std::filesystem::path& root = "/");

}  // namespace braid
