// How large the parts of a plan are. A plan goes in parts: the first blocks travel while the lists
// of the others are written.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "kv/layout.h"

namespace braid::kv {

/// The first part is no smaller than 512 copies and 32 MiB, so that every link carries some of it.
inline size_t first_part_blocks(const Layout& layout) {
  constexpr size_t kFirstPartCopies = 512;
  constexpr uint64_t kFirstPartBytes = 32 << 20;
  return std::max<size_t>({1, kFirstPartCopies / layout.segments().size(),
                           static_cast<size_t>(kFirstPartBytes / layout.block_bytes())});
}

/// Each further part is so many times as large as the one ahead, so that a plan has few. But its
/// list is to be written before the part ahead of it has landed, and four links move about 16 KiB
/// while one copy is listed.
inline uint64_t part_growth(const Layout& layout) {
  constexpr uint64_t kBytesWhileListed = 16 << 10;
  constexpr uint64_t kLeastGrowth = 2, kMostGrowth = 8;
  const uint64_t copy_bytes = layout.block_bytes() / layout.segments().size();
  return std::clamp(copy_bytes / kBytesWhileListed, kLeastGrowth, kMostGrowth);
}

}  // namespace braid::kv
