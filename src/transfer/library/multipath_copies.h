// Copies between host memory and GPUs over every PCIe link of the server. braid's own engine
// (braid.h) makes them, from libbraid.so or, under `braid run`, from the interposer. If there are
// several GPUs, the engine is opened with the first lane, in the background. The driver copies
// until the engine is ready, if the library is missing, and if there is nothing to gain.
#pragma once

#include <atomic>
#include <mutex>
#include <vector>

#include "braid/braid.h"
#include "fabric/gpu/mover.h"
#include "transfer/transports.h"

namespace braid::transfer {

class MultipathCopies final : public fabric::gpu::Carrier {
 public:
  MultipathCopies() = default;
  /// No copy may be under way any more.
  ~MultipathCopies() override;
  MultipathCopies(const MultipathCopies&) = delete;
  MultipathCopies& operator=(const MultipathCopies&) = delete;

  void prepare() override;
  void forget() override;
  CUresult copy(CUdeviceptr to, CUdeviceptr from, uint64_t size_bytes, CUstream stream) override;
  /// EngineOptions::copy_paths. Threads: any.
  std::vector<CopyPath> paths(int gpu, bool is_to_gpu, uint64_t size_bytes) const;

 private:
  struct Functions {
    decltype(&braid_open) open = nullptr;
    decltype(&braid_close) close = nullptr;
    decltype(&braid_prepare) prepare = nullptr;
    decltype(&braid_forget_context) forget = nullptr;
    decltype(&braid_copy) copy = nullptr;
    decltype(&braid_last_cuda_error) last_cuda_error = nullptr;
    decltype(&braid_paths) paths = nullptr;  // null: an older library
  };
  static Functions find();
  void open();

  std::mutex opening_;  // of the lanes' threads
  bool is_opened_ = false;
  Functions call_;
  std::atomic<braid_engine*> engine_ = nullptr;  // null: not opened yet, or it cannot be opened
};

}  // namespace braid::transfer
