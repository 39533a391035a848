// The records of pull kernels on one GPU's link (pull.h: LinkOccupancy, LinkPace), in that GPU's
// memory.
#pragma once

#include "cuda/kernels/pull.h"
#include "multipath/transfer.h"

namespace braid::multipath {

/// At an address in memory that is all zero before its first use.
class LinkState {
 public:
  explicit LinkState(CUdeviceptr memory = 0) : memory_(memory) {}

  CUdeviceptr occupancy(Direction direction) const {
    return memory_ + static_cast<size_t>(direction) * kOccupancyStride;
  }
  CUdeviceptr pace() const { return memory_ + kPaceOffset; }

 private:
  // The two directions' records lie apart, so that they never share a memory transaction.
  static constexpr size_t kOccupancyStride = 128;
  static_assert(sizeof(cuda::LinkOccupancy) <= kOccupancyStride);
  static constexpr size_t kPaceOffset = 2 * kOccupancyStride;

  CUdeviceptr memory_;

 public:
  static constexpr size_t kSizeBytes = kPaceOffset + sizeof(cuda::LinkPace);
};

}  // namespace braid::multipath
