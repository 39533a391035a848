// The pull kernels, loaded into one context, and how they are launched there.
#pragma once

#include "base/options.h"
#include "base/status.h"
#include "cuda/driver.h"

namespace braid::multipath {

/// How one of the two pull kernels is launched.
struct KernelConfig {
  CUfunction function = nullptr;
  uint32_t blocks = 0;        ///< a path spends these on a contiguous copy
  uint32_t batch_blocks = 0;  ///< and these on a batch
  uint32_t threads = 0;
  uint32_t shared_bytes = 0;
};

struct PullKernels {
  CUmodule module = nullptr;
  KernelConfig vector;
  KernelConfig bulk;  ///< no function where the GPU has no bulk copies

  bool are_loaded() const { return vector.function != nullptr; }

  /// The bulk kernel where the GPU has it and the ends are aligned alike, else the plain one.
  const KernelConfig& choose(bool aligned_alike) const {
    return aligned_alike && bulk.function != nullptr ? bulk : vector;
  }
};

/// Into the current context, which is of `device`. The driver waits for all streams of the context
/// and holds its lock meanwhile (docs/architecture.md, "The law"): call it while the context is
/// new, or in a call of the program's that may wait.
Result<PullKernels> load_pull_kernels(const cuda::Driver& driver, const Options& options,
                                      CUdevice device, int gpu);

/// Launches each kernel where it does nothing. The first launch of a kernel that uses more local
/// memory than its context has set aside waits for all streams of the context, while the driver
/// sets more aside (docs/measurements, 2026-11-22-2xH200-probes): so do this while there is no
/// work.
Status warm_up(const cuda::Driver& driver, const PullKernels& kernels, CUstream stream);

}  // namespace braid::multipath
