// Sizes as people write them. Units of bytes are powers of two (1M = 1048576); bandwidths elsewhere
// are 10^9 bytes a second, as usual in the field.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace braid {

/// "4096", "64K", "1M", "2GiB" to bytes. The error names the text.
Result<uint64_t> parse_size(std::string_view text);

/// "1M,4M,1G" to bytes; empty items are errors.
Result<std::vector<uint64_t>> parse_size_list(std::string_view text);

/// 1048576 to "1M", 1500 to "1500": the shortest exact form, which parse_size reads back.
std::string format_size(uint64_t size_bytes);

}  // namespace braid
