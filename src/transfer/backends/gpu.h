// Moves slices within this process if one end or both are GPU memory. Rights are checked here too.
#pragma once

#include "transfer/backends/own.h"
#include "transfer/buffers.h"
#include "transfer/gpu_jobs.h"

namespace braid::transfer {

class GpuBackend final : public OwnBackend {
 public:
  /// Both must outlive the backend. The owner of `jobs` steps them.
  GpuBackend(const Buffers& buffers, GpuJobs& jobs) : buffers_(buffers), jobs_(jobs) {}

  void post(uint32_t way, const Piece& piece) override;

 private:
  const Buffers& buffers_;
  GpuJobs& jobs_;
};

}  // namespace braid::transfer
