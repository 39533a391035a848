// Copies of rows (2D, 3D) as segments. Pure.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <vector>

#include "multipath/transfer.h"

namespace braid::preload {

/// One end of a box of bytes: its first row, and the distances between rows and between layers.
struct BoxEnd {
  CUdeviceptr first = 0;
  uint64_t row_pitch_bytes = 0;
  uint64_t layer_pitch_bytes = 0;
};

/// `depth` layers of `height` rows of `width_bytes` each.
struct Box {
  BoxEnd to;
  BoxEnd from;
  uint64_t width_bytes = 0;
  uint64_t height = 0;
  uint64_t depth = 1;

  /// 0 also if the size is larger than a number can say.
  uint64_t size_bytes() const;
};

/// The length from which rows that do not touch gain from braid.
inline constexpr uint64_t kSmallestRowBytes = 8 << 10;

/// Appends the box's rows; rows that touch at both ends become one segment. False if the rows are
/// too short to gain, overlap, are more than a million, or have an address that wraps; the list is
/// then of no use.
bool append_rows(const Box& box, multipath::Direction direction,
                 std::vector<multipath::Segment>& segments);

}  // namespace braid::preload
