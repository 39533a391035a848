// Policy, pure: how a transfer is sliced. No driver, no clock, no state. Source: MMA section 3.4.1
// (chunk size); the figures are this project's. How many paths it takes: cost_model.h.
#pragma once

#include <cstdint>

namespace braid::multipath {

/// One size for all kernels, transfers and servers. On 4xH200, 4 to 256 MiB, no size from 32 to
/// 256 KiB stood out of the spread (docs/measurements, slice sweep). On the emulated h20x8 and
/// h200x4, 2 to 64 MiB, 64 KiB is the fastest or within 2 % of it everywhere (docs/tuning.md). A
/// block takes its next slice while the last one moves, so taking is free unless a slice is shorter
/// than that. Larger slices make links end at different times, and relays yield later.
inline constexpr uint32_t kDefaultSliceBytes = 64 << 10;

/// Keeps slices addressable by 32-bit counters for any transfer size.
uint32_t slice_bytes_for(uint64_t size_bytes, uint64_t asked_bytes);

/// The CPU writes a batch's slice lists within the call, and kernels read them over the link that
/// they fill. So a large batch has larger slices, about a thousand of them at most: enough for
/// links to end together. This limits their size: larger ones would make relays yield late.
inline constexpr uint32_t kLargestBatchSliceBytes = 1 << 20;
uint32_t batch_slice_bytes_for(uint64_t size_bytes, uint64_t asked_bytes);

}  // namespace braid::multipath
