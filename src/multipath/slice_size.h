// Policy, pure: how a transfer is sliced. No driver, no clock, no state. Source: MMA section 3.4.1
// (chunk size); the figures are this project's. How many paths it takes: cost_model.h.
#pragma once

#include <cstdint>

namespace braid::multipath {

/// 64 KB: from 32 KB to 256 KB no size stood out of the others' spread (docs/measurements, slice
/// sweep), and smaller slices end together and let relays yield sooner.
inline constexpr uint32_t kDefaultSliceBytes = 64 << 10;

/// Slices stay addressable by 32-bit counters, whatever the transfer's size.
uint32_t slice_bytes_for(uint64_t size_bytes, uint64_t asked_bytes);

}  // namespace braid::multipath
