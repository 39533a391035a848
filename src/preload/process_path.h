// The path of a file that braid writes for a process: the user's text, with "%p" replaced by the
// process's number. In a fixed array, so that a signal handler can make it; but the handler's stack
// may be too small to hold it.
#pragma once

#include <climits>
#include <cstdint>
#include <string_view>

namespace braid::preload {

class ProcessPath {
 public:
  constexpr ProcessPath() noexcept = default;
  ProcessPath(std::string_view pattern, int64_t pid) noexcept { set(pattern, pid); }
  void set(std::string_view pattern, int64_t pid) noexcept;
  /// Empty if the path would be too long.
  const char* c_str() const noexcept { return text_; }

 private:
  char text_[PATH_MAX]{};
};

}  // namespace braid::preload
