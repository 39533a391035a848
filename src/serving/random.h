// Random numbers that are the same with every compiler: the standard defines the engine's numbers,
// but not the distributions'.
#pragma once

#include <cmath>
#include <cstdint>
#include <numbers>
#include <random>

namespace braid::serving {

class Random {
 public:
  explicit Random(uint64_t seed) : engine_(seed) {}

  /// In [0, 1).
  double uniform() { return static_cast<double>(engine_() >> 11) * 0x1p-53; }
  uint64_t below(uint64_t limit) { return engine_() % limit; }
  double exponential(double mean) { return -mean * std::log1p(-uniform()); }
  double normal() {
    const double radius = std::sqrt(-2 * std::log1p(-uniform()));
    return radius * std::cos(2 * std::numbers::pi * uniform());
  }

 private:
  std::mt19937_64 engine_;
};

}  // namespace braid::serving
