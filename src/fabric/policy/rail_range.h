// The rails that a write may use. Pure. Source: 3.4 of the paper ("transfers can target specific
// NICs by index").
#pragma once

#include <cstddef>

namespace braid::fabric {

/// `count` rails, from `first` on. A count of 0 stands for all rails.
struct RailRange {
  size_t first = 0;
  size_t count = 0;

  bool has(size_t rail) const { return count == 0 || (rail >= first && rail - first < count); }
  /// Whether an engine with so many rails has all of them.
  bool fits(size_t rail_count) const {
    return count == 0 || (first < rail_count && count <= rail_count - first);
  }
};

}  // namespace braid::fabric
