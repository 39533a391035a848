// What measurements of copies have in common.
#pragma once

#include <memory>
#include <vector>

#include "base/options.h"
#include "base/status.h"
#include "cuda/driver.h"
#include "multipath/engine.h"
#include "tools/gpu_objects.h"
#include "tools/limit.h"
#include "tools/readings.h"
#include "tools/warm_up.h"

namespace braid::tools {

/// The contexts of all GPUs, an engine, what keeps GPUs awake, and the server's limit.
class Workbench {
 protected:
  Workbench(const cuda::Driver& driver, int target)
      : driver_(driver), target_(target), objects_(driver) {}

  /// The contexts of all GPUs. The target's is current afterwards.
  Status open_gpus();
  /// And what measures. In the current context.
  Status open_engine(const Options& options);
  /// One reading more, GB/s.
  Status measure_limit(Flow flow, Readings& limit);
  /// Milliseconds from `begin_` to `end_`, both recorded.
  Result<double> elapsed_ms() const;

  const cuda::Driver& driver_;
  const int target_;
  std::vector<CUcontext> contexts_;  // of every GPU
  GpuObjects objects_;
  CUevent begin_ = nullptr;
  CUevent end_ = nullptr;
  std::unique_ptr<multipath::Engine> engine_;
  std::unique_ptr<WarmUp> warm_up_;

 private:
  std::unique_ptr<Limit> limit_;  // opened when it is first asked for
};

}  // namespace braid::tools
