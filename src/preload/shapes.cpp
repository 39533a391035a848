#include "preload/shapes.h"

#include "preload/checked.h"

namespace braid::preload {
namespace {

constexpr uint64_t kMostSegments = 1 << 20;

bool are_rows_apart(const Box& box, const BoxEnd& end) {
  const uint64_t layer_bytes = end.row_pitch_bytes * (box.height - 1) + box.width_bytes;
  return (box.height == 1 || end.row_pitch_bytes >= box.width_bytes) &&
         (box.depth == 1 || end.layer_pitch_bytes >= layer_bytes);
}

// The end of its last row, and so every other address too, is a number.
bool is_in_reach(const Box& box, const BoxEnd& end) {
  return (Checked(end.layer_pitch_bytes) * (box.depth - 1) +
          Checked(end.row_pitch_bytes) * (box.height - 1) + box.width_bytes + end.first)
      .is_exact();
}

bool are_rows_joined(const Box& box) {
  return box.height == 1 ||
         (box.to.row_pitch_bytes == box.width_bytes && box.from.row_pitch_bytes == box.width_bytes);
}

bool are_layers_joined(const Box& box) {
  const uint64_t layer_bytes = box.width_bytes * box.height;
  return box.depth == 1 ||
         (box.to.layer_pitch_bytes == layer_bytes && box.from.layer_pitch_bytes == layer_bytes);
}

bool is_plausible(const Box& box, const BoxEnd& end) {
  return is_in_reach(box, end) && are_rows_apart(box, end);
}

}  // namespace

uint64_t Box::size_bytes() const {
  const Checked size_bytes = Checked(width_bytes) * height * depth;
  return size_bytes.is_exact() ? size_bytes.value() : 0;
}

bool append_rows(const Box& box, multipath::Direction direction,
                 std::vector<multipath::Segment>& segments) {
  if (box.size_bytes() == 0 || !is_plausible(box, box.to) || !is_plausible(box, box.from))
    return false;
  // Every joined dimension becomes part of one longer row.
  Box rows = box;
  if (are_rows_joined(rows)) {
    rows.width_bytes *= rows.height;
    rows.height = 1;
    if (are_layers_joined(rows)) {
      rows.width_bytes *= rows.depth;
      rows.depth = 1;
    }
  }
  const uint64_t count = rows.height * rows.depth;
  if (count > kMostSegments || (count > 1 && rows.width_bytes < kSmallestRowBytes)) return false;
  const bool to_device = direction == multipath::Direction::kHostToDevice;
  for (uint64_t layer = 0; layer < rows.depth; ++layer)
    for (uint64_t row = 0; row < rows.height; ++row) {
      const auto at = [&](const BoxEnd& end) {
        return end.first + layer * end.layer_pitch_bytes + row * end.row_pitch_bytes;
      };
      const CUdeviceptr host = at(to_device ? rows.from : rows.to);
      const CUdeviceptr device = at(to_device ? rows.to : rows.from);
      segments.push_back({reinterpret_cast<void*>(host), device, rows.width_bytes});
    }
  return true;
}

}  // namespace braid::preload
