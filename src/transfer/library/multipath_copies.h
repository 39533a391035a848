// Copies between host memory and GPUs over every PCIe link of the server: braid's own (braid.h), as
// libbraid.so makes them, or under `braid run` the interposer. Where there are several GPUs its
// engine is opened with the first lane, in the background; until it is ready, without the library,
// and where there is nothing to gain, the driver copies.
#pragma once

#include <atomic>
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

  void prepare() override;
  CUresult copy(CUdeviceptr to, CUdeviceptr from, uint64_t size_bytes, CUstream stream) override;

 private:
  struct Functions {
    decltype(&braid_open) open = nullptr;
    decltype(&braid_close) close = nullptr;
    decltype(&braid_prepare) prepare = nullptr;
    decltype(&braid_copy) copy = nullptr;
    decltype(&braid_last_cuda_error) last_cuda_error = nullptr;
  };
  static Functions find();
  void open();

  std::mutex opening_;  // of the lanes' threads
  bool is_opened_ = false;
  Functions call_;
  std::atomic<braid_engine*> engine_ = nullptr;  // null: not yet, or it cannot be had
};

}  // namespace braid::transfer
