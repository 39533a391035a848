// SplitMix64 (Steele, Lea, Flood: Fast Splittable Pseudorandom Number Generators). Equal seeds give
// equal numbers on every machine and with every standard library.
#pragma once

#include <cstdint>

namespace braid {

/// From the state of one number to that of the next.
inline constexpr uint64_t kSplitMixStep = 0x9e3779b97f4a7c15;

/// The number of a state: any of the sequence by itself.
constexpr uint64_t split_mix(uint64_t state) {
  state = (state ^ (state >> 30)) * 0xbf58476d1ce4e5b9;
  state = (state ^ (state >> 27)) * 0x94d049bb133111eb;
  return state ^ (state >> 31);
}

/// The sequence that follows a seed.
class SplitMix {
 public:
  explicit constexpr SplitMix(uint64_t seed) : state_(seed) {}

  constexpr uint64_t next() { return split_mix(state_ += kSplitMixStep); }
  /// In [0, 1).
  constexpr double unit() { return static_cast<double>(next() >> 11) * 0x1p-53; }

 private:
  uint64_t state_;
};

}  // namespace braid
