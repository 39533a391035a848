// What every contender of a race does in a turn: the same writes, between the same two places.
#pragma once

#include <cstdint>
#include <vector>

namespace braid::bench {

enum class Pattern : uint8_t {
  kSingle,
  kPaged,    ///< a write has many pages
  kScatter,  ///< a part for each member of a group
  kBarrier,  ///< no bytes: one engine and its group wait for each other
};

inline constexpr const char* kPatternNames[] = {"single", "paged", "scatter", "barrier"};

inline constexpr uint64_t kPagesAtOnce = 256;
inline constexpr uint64_t kMembers = 4;

struct Load {
  Pattern pattern = Pattern::kSingle;
  uint64_t size_bytes = 0;     ///< of a write, a page or a part
  uint64_t parts_at_once = 1;  ///< pages of a write, or parts of a scatter
  uint64_t count = 0;          ///< of all writes, pages, parts or barriers; of whole writes
  uint64_t depth = 0;          ///< of them under way at once
  bool is_one_place = false;   ///< all of them go from and to the first place

  uint64_t total_bytes() const { return size_bytes * count; }
  /// Where the i-th lies, in the source as in the target, counted in sizes. Each place is written
  /// once, but where all go to the first. The parts of one write lie apart, so that nobody can take
  /// neighbours as one.
  uint64_t place(uint64_t i) const {
    if (is_one_place) return 0;
    return i % parts_at_once * (count / parts_at_once) + i / parts_at_once;
  }
  /// The places of one write's pages.
  std::vector<uint32_t> pages(uint64_t first) const {
    std::vector<uint32_t> indices(parts_at_once);
    for (uint64_t i = 0; i < parts_at_once; ++i)
      indices[i] = static_cast<uint32_t>(place(first + i));
    return indices;
  }
};

}  // namespace braid::bench
