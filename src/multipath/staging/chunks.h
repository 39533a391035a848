// How a pageable copy is cut. A chunk is the unit of staging and sending: the threads copy one
// while the links carry those before it. Pure.
#pragma once

#include <cstdint>

#include "multipath/transfer.h"

namespace braid::multipath::staging {

/// Smaller copies stay native: waking the threads costs about as much as it saves.
inline constexpr uint64_t kThresholdBytes = uint64_t{1} << 20;

/// A chunk takes the threads about 100 us, ten times what it costs to send it over every path.
inline constexpr uint64_t kSlotBytes = uint64_t{8} << 20;

/// One chunk that is copied, one on the links, one behind it so that the links never wait, and one
/// whose end the caller has not seen yet.
inline constexpr int kSlots = 4;

/// The first chunk is small, so that the links start early; each later one is twice as large, up to
/// a slot. To the host they also shrink at the end: the links are idle while the last one is copied
/// out of its slot. `index` counts from 0; `left_bytes` is above 0.
uint64_t chunk_bytes(Direction direction, int index, uint64_t left_bytes);

}  // namespace braid::multipath::staging
