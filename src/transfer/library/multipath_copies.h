// Copies between host memory and GPUs over every PCIe link of the server: braid's own (braid.h), as
// libbraid.so makes them, or under `braid run` the interposer. The library is looked for beside the
// first large copy, and its engine opened in the background; until it is ready, without it, and
// where there is nothing to gain, the driver copies.
#pragma once

#include <mutex>

#include "braid/braid.h"
#include "fabric/gpu/mover.h"

namespace braid::transfer {

class MultipathCopies final : public fabric::gpu::Carrier {
 public:
  MultipathCopies() = default;
  /// Nothing of it is under way any more.
  ~MultipathCopies() override;
  MultipathCopies(const MultipathCopies&) = delete;
  MultipathCopies& operator=(const MultipathCopies&) = delete;

  CUresult copy(CUdeviceptr to, CUdeviceptr from, uint64_t size_bytes, CUstream stream) override;

 private:
  struct Functions {
    decltype(&braid_open) open = nullptr;
    decltype(&braid_close) close = nullptr;
    decltype(&braid_copy) copy = nullptr;
    decltype(&braid_last_cuda_error) last_cuda_error = nullptr;
  };
  static Functions find();
  void open();

  std::once_flag opening_;
  Functions call_;
  braid_engine* engine_ = nullptr;  // null: it cannot be had
};

}  // namespace braid::transfer
