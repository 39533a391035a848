// The bytes that each path has carried, by target, link, direction and mover: the engine's half of
// the statistics. A fixed table, so that it can be filled where nothing may be allocated.
//
// Not thread-safe: its owner locks.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "multipath/transfer.h"

namespace braid::multipath {

/// `via` is the GPU whose PCIe link carried the bytes: the target itself on the direct path.
struct PathCount {
  int target = 0;
  int via = 0;
  Direction direction = Direction::kHostToDevice;
  Mover mover = Mover::kKernel;
  uint64_t slices = 0;
  uint64_t bytes = 0;

  bool is_same_path(const PathCount& other) const {
    return target == other.target && via == other.via && direction == other.direction &&
           mover == other.mover;
  }
};

class PathCounts {
 public:
  void add(const PathCount& more) noexcept {
    for (size_t at = 0; at < size_; ++at)
      if (counts_[at].is_same_path(more)) {
        counts_[at].slices += more.slices;
        counts_[at].bytes += more.bytes;
        return;
      }
    if (size_ < counts_.size()) counts_[size_++] = more;
  }
  void clear() noexcept { size_ = 0; }
  std::span<const PathCount> all() const noexcept { return {counts_.data(), size_}; }

 private:
  // Sixteen GPUs that all help each other both ways are 512 paths.
  std::array<PathCount, 1024> counts_{};
  size_t size_ = 0;
};

}  // namespace braid::multipath
