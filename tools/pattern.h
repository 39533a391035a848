// The bytes that measured copies carry: random, and made again from their place when they are
// verified, so that verifying does not read a copy's source. What the CPU has just read or written
// lies in its caches, and relays read and write it slower (docs/bench.md).
#pragma once

#include <cstdint>

namespace braid::tools {

/// What destinations hold before a copy, so that one that did not happen shows.
inline constexpr int kPoison = 0xA5;

/// Fills `size_bytes` bytes with `seed`'s sequence, which begins `offset_bytes` bytes before
/// `data`. The offset is a multiple of 8.
void fill_pattern(void* data, uint64_t size_bytes, uint64_t seed, uint64_t offset_bytes = 0);

/// Whether every byte is what fill_pattern puts there.
bool has_pattern(const void* data, uint64_t size_bytes, uint64_t seed, uint64_t offset_bytes = 0);

}  // namespace braid::tools
