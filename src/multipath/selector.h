// Policy, pure: how many paths a transfer takes and how it is sliced. No driver, no clock, no
// state. Source: MMA sections 3.2 (fallback) and 3.4.1 (chunk size); the figures are this
// project's.
#pragma once

#include <cstdint>

namespace braid::multipath {

/// 64 KB: from 32 KB to 256 KB no size stood out of the others' spread (docs/measurements, slice
/// sweep), and smaller slices end together and let relays yield sooner.
inline constexpr uint32_t kDefaultSliceBytes = 64 << 10;

/// Slices stay addressable by 32-bit counters, whatever the transfer's size.
uint32_t slice_bytes_for(uint64_t size_bytes, uint64_t asked_bytes);

/// The direct path and as many relays as still have bytes to carry by the time that they have been
/// launched, one after the other. At least 1, at most `available`.
int path_count_for(uint64_t size_bytes, int available);

}  // namespace braid::multipath
