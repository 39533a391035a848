// Copies of rows (2D, 3D) as segments. Pure.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <vector>

#include "multipath/transfer.h"

namespace braid::preload {

/// One end of a box of bytes: where its first row begins, and how far rows and layers lie apart.
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

  uint64_t size_bytes() const { return width_bytes * height * depth; }
};

/// Rows that do not touch gain from braid when they are as long as this.
inline constexpr uint64_t kSmallestRowBytes = 8 << 10;

/// Appends the box's rows; rows that touch at both ends are one segment. False, with nothing
/// appended that matters, when the rows are too short to gain, overlap, or are beyond a million.
bool append_rows(const Box& box, multipath::Direction direction,
                 std::vector<multipath::Segment>& segments);

}  // namespace braid::preload
