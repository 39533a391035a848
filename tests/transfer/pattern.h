// Bytes that say where they belong: of a seed and a place, so that wrong, old and misplaced ones
// are seen.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

namespace braid::transfer::test {

inline std::byte pattern_at(uint64_t seed, uint64_t place) {
  uint64_t mixed = (place / 8 + seed * 0x9e3779b97f4a7c15) * 0xbf58476d1ce4e5b9;
  mixed ^= mixed >> 31;
  return static_cast<std::byte>(mixed >> 8 * (place % 8));
}

inline void fill(std::span<std::byte> bytes, uint64_t seed, uint64_t place = 0) {
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = pattern_at(seed, place + i);
}

/// The first place that is wrong.
inline std::optional<size_t> wrong_at(std::span<const std::byte> bytes, uint64_t seed,
                                      uint64_t place = 0) {
  for (size_t i = 0; i < bytes.size(); ++i)
    if (bytes[i] != pattern_at(seed, place + i)) return i;
  return std::nullopt;
}

}  // namespace braid::transfer::test
