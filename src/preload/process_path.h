// The path of a file that braid writes for a process: as the user gave it, with "%p" for the
// process's number. In a fixed array, so that it can be made in a signal handler.
#pragma once

#include <climits>
#include <cstdint>
#include <string_view>

namespace braid::preload {

class ProcessPath {
 public:
  ProcessPath(std::string_view pattern, int64_t pid, std::string_view suffix = {}) noexcept;
  /// Empty when it would be too long for a path.
  const char* c_str() const noexcept { return text_; }

 private:
  char text_[PATH_MAX];
};

}  // namespace braid::preload
