// Policy, pure: how a transfer is sliced. No driver, no clock, no state. Source: MMA section 3.4.1
// (chunk size); the figures are this project's. How many paths it takes: cost_model.h.
#pragma once

#include <cstdint>

namespace braid::multipath {

/// One size for kernels, whatever the transfer and the server: on 4xH200, 4 to 256 MiB, no size
/// from 32 KB to 256 KB stood out of the others' spread (docs/measurements, slice sweep), and on
/// the emulated h20x8 and h200x4, 2 to 64 MiB, 64 KB is the fastest or within 2 % of it everywhere
/// (docs/tuning.md). A block takes its next slice while the last one moves, so the size costs
/// nothing until a slice is shorter than that; larger ones make links end apart, and relays yield
/// later.
inline constexpr uint32_t kDefaultSliceBytes = 64 << 10;

/// Slices stay addressable by 32-bit counters, whatever the transfer's size.
uint32_t slice_bytes_for(uint64_t size_bytes, uint64_t asked_bytes);

/// A batch's slices are lists that the CPU writes, in the call: a large batch has larger slices, so
/// that there are some thousands of them at most; up to here, or links would end apart.
inline constexpr uint32_t kLargestBatchSliceBytes = 1 << 20;
uint32_t batch_slice_bytes_for(uint64_t size_bytes, uint64_t asked_bytes);

}  // namespace braid::multipath
