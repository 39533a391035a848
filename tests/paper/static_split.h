// The paper's comparison in figure 11: a copy whose shares of the direct path and of one relay are
// settled in advance. The driver's own copies carry both, the relay's through buffers in its GPU's
// memory: braid has no part in it.
//
// Not thread-safe. Destroy it when its copies have ended.
#pragma once

#include <array>

#include "support/server.h"

namespace braid::paper {

struct Shares {
  uint32_t direct;
  uint32_t relayed;
};

class StaticSplit {
 public:
  /// The relay's context may touch the target's memory. The current context is the target's.
  StaticSplit(const cuda::Driver& driver, CUcontext relay, Shares shares);
  ~StaticSplit();
  StaticSplit(const StaticSplit&) = delete;
  StaticSplit& operator=(const StaticSplit&) = delete;

  /// Host to device, in the stream's order.
  void enqueue(const uint8_t* host, CUdeviceptr device, uint64_t size_bytes, CUstream stream);

 private:
  void relay(const uint8_t* host, CUdeviceptr device, uint64_t size_bytes);

  static constexpr size_t kBuffers = 2;
  struct Buffer {
    CUdeviceptr at = 0;
    CUevent full = nullptr;
    CUevent empty = nullptr;
  };

  const cuda::Driver& driver_;
  CUcontext relay_;
  Shares shares_;
  std::array<Buffer, kBuffers> buffers_;
  CUstream pcie_ = nullptr;  // one on the link, as the background traffic is one
  CUstream nvlink_ = nullptr;
  CUevent fork_ = nullptr;
  CUevent join_ = nullptr;
};

}  // namespace braid::paper
