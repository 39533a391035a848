// Slices within this process with GPU memory at one end or both. Rights hold here too.
#pragma once

#include "transfer/backends/own.h"
#include "transfer/buffers.h"
#include "transfer/gpu_jobs.h"

namespace braid::transfer {

class GpuBackend final : public OwnBackend {
 public:
  /// Both stay. Whoever has made `jobs` steps them.
  GpuBackend(const Buffers& buffers, GpuJobs& jobs) : buffers_(buffers), jobs_(jobs) {}

  void post(uint32_t way, const Piece& piece) override;

 private:
  const Buffers& buffers_;
  GpuJobs& jobs_;
};

}  // namespace braid::transfer
