#include "base/units.h"

#include <charconv>

#include "base/try.h"

namespace braid {
namespace {

// The power of two that a suffix stands for, or -1.
int suffix_shift(std::string_view suffix) {
  if (suffix.size() > 1 && (suffix.substr(1) == "iB" || suffix.substr(1) == "B"))
    suffix = suffix.substr(0, 1);
  if (suffix.empty() || suffix == "B") return 0;
  if (suffix.size() > 1) return -1;
  switch (suffix[0]) {
    case 'k':
    case 'K': return 10;
    case 'm':
    case 'M': return 20;
    case 'g':
    case 'G': return 30;
    case 't':
    case 'T': return 40;
    default: return -1;
  }
}

}  // namespace

Result<uint64_t> parse_size(std::string_view text) {
  uint64_t number = 0;
  const char* end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, number);
  const int shift = suffix_shift(std::string_view(rest, static_cast<size_t>(end - rest)));
  if (error != std::errc() || shift < 0 || (number << shift) >> shift != number)
    return Status::error("'" + std::string(text) + "' is not a size",
                         "Write a whole number of bytes, or one with K, M, G or T: 4096, 64K, 1M");
  return number << shift;
}

Result<std::vector<uint64_t>> parse_size_list(std::string_view text) {
  std::vector<uint64_t> sizes;
  while (true) {
    const size_t comma = text.find(',');
    BRAID_LET(size, parse_size(text.substr(0, comma)));
    sizes.push_back(size);
    if (comma == std::string_view::npos) return sizes;
    text.remove_prefix(comma + 1);
  }
}

std::string format_size(uint64_t size_bytes) {
  static constexpr const char* kSuffixes[] = {"", "K", "M", "G", "T"};
  int index = 0;
  while (index < 4 && size_bytes >= 1024 && size_bytes % 1024 == 0) {
    size_bytes /= 1024;
    ++index;
  }
  return std::to_string(size_bytes) + kSuffixes[index];
}

}  // namespace braid
