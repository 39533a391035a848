// The random numbers of simulations: equal seeds give equal numbers with every standard library.
// Source: SplitMix64 (Steele, Lea, Flood: Fast Splittable Pseudorandom Number Generators).
#pragma once

#include <cstdint>

namespace braid::fabric::sim {

class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}

  uint64_t next() {
    uint64_t mixed = state_ += 0x9e3779b97f4a7c15;
    mixed = (mixed ^ (mixed >> 30)) * 0xbf58476d1ce4e5b9;
    mixed = (mixed ^ (mixed >> 27)) * 0x94d049bb133111eb;
    return mixed ^ (mixed >> 31);
  }
  /// In [0, end); `end` is at least 1.
  uint64_t below(uint64_t end) { return next() % end; }
  /// In [first, last].
  uint64_t between(uint64_t first, uint64_t last) { return first + below(last - first + 1); }
  double unit() { return static_cast<double>(next() >> 11) * 0x1p-53; }
  bool chance(double probability) { return unit() < probability; }

 private:
  uint64_t state_;
};

}  // namespace braid::fabric::sim
