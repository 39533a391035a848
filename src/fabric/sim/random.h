// The random numbers of simulations: equal seeds give equal numbers with every standard library.
#pragma once

#include <cstdint>

#include "base/split_mix.h"

namespace braid::fabric::sim {

class Random : public SplitMix {
 public:
  using SplitMix::SplitMix;

  /// In [0, end); `end` is at least 1.
  uint64_t below(uint64_t end) { return next() % end; }
  /// In [first, last].
  uint64_t between(uint64_t first, uint64_t last) { return first + below(last - first + 1); }
  bool chance(double probability) { return unit() < probability; }
};

}  // namespace braid::fabric::sim
