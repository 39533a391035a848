// Copies that keep the GPUs awake between measured ones. Verifying a copy takes the CPU hundreds of
// milliseconds; a GPU that idles for 100 ms lowers its clocks, and the next copy over relays reads
// up to 15 % lower for it (4xH200, docs/bench.md). Copy engines do not mind.
#pragma once

#include <memory>

#include "base/status.h"
#include "cuda/driver.h"
#include "multipath/engine.h"
#include "tools/gpu_objects.h"

namespace braid::tools {

class WarmUp {
 public:
  /// For copies to and from the current context's GPU. Allocates. `driver` and `engine` outlive it.
  static Result<std::unique_ptr<WarmUp>> open(const cuda::Driver& driver,
                                              multipath::Engine& engine);
  WarmUp(const WarmUp&) = delete;
  WarmUp& operator=(const WarmUp&) = delete;

  /// Copies buffers of its own over the engine's paths, for some 20 ms.
  Status run(multipath::Direction direction);

 private:
  WarmUp(const cuda::Driver& driver, multipath::Engine& engine)
      : driver_(driver), engine_(engine), objects_(driver) {}

  const cuda::Driver& driver_;
  multipath::Engine& engine_;
  CUcontext context_ = nullptr;
  GpuObjects objects_;
  multipath::Batch copy_;
};

}  // namespace braid::tools
