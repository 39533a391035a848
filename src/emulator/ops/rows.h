// Walking the rows of an extent.
#pragma once

#include <cstring>

#include "emulator/ops/ops.h"

namespace braid::emulator {

/// Calls `visit(layer, row)` for every row.
template <typename Visit>
void for_each_row(const Extent& extent, Visit&& visit) {
  for (uint64_t layer = 0; layer < extent.depth; ++layer)
    for (uint64_t row = 0; row < extent.height; ++row) visit(layer, row);
}

inline std::byte* row_of(const CopyEnd& end, uint64_t layer, uint64_t row) {
  return end.bytes + layer * end.layer_bytes + row * end.row_bytes;
}

/// The bytes from the first byte of the first row to the last byte of the last.
inline uint64_t span_bytes(const CopyEnd& end, const Extent& extent) {
  return (extent.depth - 1) * end.layer_bytes + (extent.height - 1) * end.row_bytes +
         extent.width_bytes;
}

/// An end whose rows lie at `bytes` without gaps.
inline CopyEnd packed_end(std::byte* bytes, const Extent& extent) {
  CopyEnd end;
  end.bytes = bytes;
  end.row_bytes = extent.width_bytes;
  end.layer_bytes = extent.width_bytes * extent.height;
  return end;
}

/// Moves the bytes at once; the ends may overlap in one row.
inline void move_rows(const CopyEnd& to, const CopyEnd& from, const Extent& extent) {
  for_each_row(extent, [&](uint64_t layer, uint64_t row) {
    std::memmove(row_of(to, layer, row), row_of(from, layer, row), extent.width_bytes);
  });
}

}  // namespace braid::emulator
