// The pull kernels, loaded into one context, and how they are launched there.
#pragma once

#include "base/options.h"
#include "base/status.h"
#include "cuda/driver.h"

namespace braid::multipath {

/// How one of the two pull kernels is launched.
struct KernelConfig {
  CUfunction function = nullptr;
  uint32_t blocks = 0;        ///< of a path, for a contiguous copy
  uint32_t batch_blocks = 0;  ///< of a path, for a batch
  uint32_t threads = 0;
  uint32_t shared_bytes = 0;
};

struct PullKernels {
  CUmodule module = nullptr;
  KernelConfig vector;
  KernelConfig bulk;  ///< no function if the GPU has no bulk copies

  bool are_loaded() const { return vector.function != nullptr; }

  /// The bulk kernel if the GPU has it and the ends have equal alignment, otherwise the plain one.
  const KernelConfig& choose(bool aligned_alike) const {
    return aligned_alike && bulk.function != nullptr ? bulk : vector;
  }
};

/// Loads the kernels into the current context, which is of `device`. Meanwhile the driver waits for
/// all streams of the context and holds its lock (docs/architecture.md, "The law"): call it while
/// the context is new, or in a call of the program that may wait.
Result<PullKernels> load_pull_kernels(const cuda::Driver& driver, const Options& options,
                                      CUdevice device, int gpu);

/// Launches each kernel without work. The first launch of a kernel may need more local memory than
/// its context has set aside; the driver then waits for all streams of the context
/// (docs/measurements, 2026-11-22-2xH200-probes). So do this while there is no work.
Status warm_up(const cuda::Driver& driver, const PullKernels& kernels, CUstream stream);

}  // namespace braid::multipath
