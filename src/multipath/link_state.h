// What pull kernels keep about one GPU's link (pull.h: LinkBoard, LinkPace), in that GPU's memory.
#pragma once

#include "cuda/kernels/pull.h"
#include "multipath/transfer.h"

namespace braid::multipath {

/// At an address in memory that is all zero before its first use.
class LinkState {
 public:
  explicit LinkState(CUdeviceptr memory = 0) : memory_(memory) {}

  CUdeviceptr board(Direction direction) const {
    return memory_ + static_cast<size_t>(direction) * kBoardStride;
  }
  CUdeviceptr pace() const { return memory_ + kPaceOffset; }

 private:
  // The two directions' boards lie apart, so that they never share a memory transaction.
  static constexpr size_t kBoardStride = 128;
  static_assert(sizeof(cuda::LinkBoard) <= kBoardStride);
  static constexpr size_t kPaceOffset = 2 * kBoardStride;

  CUdeviceptr memory_;

 public:
  static constexpr size_t kSizeBytes = kPaceOffset + sizeof(cuda::LinkPace);
};

}  // namespace braid::multipath
