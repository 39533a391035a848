// Numbers from a seed, the same on every machine and with every standard library.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/split_mix.h"

namespace braid::stress {

class Random : public SplitMix {
 public:
  using SplitMix::SplitMix;

  /// 0 to limit - 1; 0 when `limit` is 0.
  uint64_t below(uint64_t limit) { return limit == 0 ? 0 : next() % limit; }
  uint64_t between(uint64_t least, uint64_t most) { return least + below(most - least + 1); }
  bool one_in(uint64_t count) { return below(count) == 0; }
  template <typename Item>
  const Item& of(const std::vector<Item>& items) {
    return items[below(items.size())];
  }
};

}  // namespace braid::stress
