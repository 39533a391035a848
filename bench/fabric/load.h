// What every contender of a race does in a turn: the same writes, between the same two places.
#pragma once

#include <cstdint>

namespace braid::bench {

inline constexpr uint64_t kPagesAtOnce = 256;

struct Load {
  bool is_paged = false;
  uint64_t size_bytes = 0;  ///< of a write, or of a page
  uint64_t count = 0;       ///< of writes; or of pages, a multiple of kPagesAtOnce
  uint64_t depth = 0;       ///< of them under way at once

  uint64_t total_bytes() const { return size_bytes * count; }
  uint64_t unit() const { return is_paged ? kPagesAtOnce : 1; }
  /// Where the i-th lies, in the source as in the target, counted in sizes. Each place is written
  /// once. The pages of one write lie apart, so that nobody can take neighbours as one.
  uint64_t place(uint64_t i) const {
    return is_paged ? i % kPagesAtOnce * (count / kPagesAtOnce) + i / kPagesAtOnce : i;
  }
};

}  // namespace braid::bench
