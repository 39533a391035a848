// One copy of a KV cache's segment at a time: what the call costs the CPU, and what the copy itself
// takes (SuperInfer, figure 12).
#pragma once

#include <cstdint>
#include <memory>

#include "bench/kv/contenders.h"
#include "kv/host_pool.h"

namespace braid::bench {

class SegmentTimes {
 public:
  explicit SegmentTimes(const Gpu& gpu);
  ~SegmentTimes();

  /// Of one cuMemcpyAsync of `size_bytes`, while earlier copies of the stream run.
  struct Times {
    double call_us;
    double transfer_us;
  };
  Times of(uint64_t size_bytes, bool is_down);

 private:
  double run_us(uint64_t size_bytes, uint32_t copies, bool is_down, double* call_us);

  const Gpu& gpu_;
  DeviceMemory memory_;
  std::unique_ptr<kv::HostPool> host_;
  CUstream stream_ = nullptr;
};

}  // namespace braid::bench
