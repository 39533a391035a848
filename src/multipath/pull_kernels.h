// The pull kernels, loaded into one context, and how they are launched there.
#pragma once

#include "base/options.h"
#include "base/status.h"
#include "cuda/driver.h"
#include "multipath/transfer_state.h"

namespace braid::multipath {

/// How one of the pull kernels is launched.
struct KernelConfig {
  CUfunction function = nullptr;
  uint32_t blocks = 0;        ///< of a path
  uint32_t batch_blocks = 0;  ///< of a path, where it starts many segments: `blocks_for`
  uint32_t threads = 0;
  uint32_t shared_bytes = 0;
  uint32_t chunk_bytes = 0;  ///< what a block starts at once

  /// Of a path, for these bytes.
  uint32_t blocks_for(Direction direction, const SlicedBytes& bytes) const;
};

struct PullKernels {
  CUmodule module = nullptr;
  KernelConfig vector;
  KernelConfig bulk;     ///< no function if the GPU has no bulk copies
  KernelConfig to_host;  ///< likewise; of the direct path alone

  bool are_loaded() const { return vector.function != nullptr; }

  /// A bulk kernel if the GPU has it and the ends have equal alignment, otherwise the plain one.
  /// `is_own`: the path is the direct one, so that the GPU copies from or to its own memory.
  const KernelConfig& choose(Direction direction, bool is_own, bool aligned_alike) const {
    const KernelConfig& wanted = direction == Direction::kDeviceToHost && is_own ? to_host : bulk;
    return aligned_alike && wanted.function != nullptr ? wanted : vector;
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
