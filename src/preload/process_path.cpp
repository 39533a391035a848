#include "preload/process_path.h"

#include <charconv>

namespace braid::preload {

void ProcessPath::set(std::string_view pattern, int64_t pid) noexcept {
  char digits[20];
  const auto end = std::to_chars(digits, digits + sizeof digits, pid).ptr;
  const std::string_view number(digits, static_cast<size_t>(end - digits));
  size_t size = 0;
  const auto append = [&](std::string_view part) {
    if (size + part.size() < sizeof text_) part.copy(text_ + size, part.size());
    size += part.size();
  };
  while (!pattern.empty()) {
    const bool is_number = pattern.starts_with("%p");
    append(is_number ? number : pattern.substr(0, 1));
    pattern.remove_prefix(is_number ? 2 : 1);
  }
  text_[size < sizeof text_ ? size : 0] = '\0';
}

}  // namespace braid::preload
