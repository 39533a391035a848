// The settings of a simulated serving engine, and the results of a run.
#pragma once

#include <cstdint>
#include <vector>

#include "base/status.h"
#include "serving/cost/step_time.h"
#include "serving/hardware.h"
#include "serving/metrics.h"

namespace braid::serving {

struct EngineConfig {
  Model model;
  StepConstants constants;
  Gpu gpu;
  Link link;
  HostMemory host;
  double hbm_share = 0.9;  ///< of the GPU's memory for weights, activations and KV caches
  double activation_bytes = 2e9;
  double host_bytes = 400e9;     ///< for KV caches, by GPU (SuperInfer section 5.2)
  uint32_t token_budget = 1024;  ///< of a step
  uint32_t max_running = 1024;
  /// Steps end when the copies that were decided before them have ended (SuperInfer's pipeline,
  /// figure 15). Otherwise a request sits out while its blocks are not there yet.
  bool steps_wait_for_copies = false;

  /// Blocks of KV cache on the GPU. Fails, naming the cause, if the model does not fit.
  Result<uint32_t> gpu_blocks() const;
  uint32_t host_blocks() const {
    return static_cast<uint32_t>(host_bytes / static_cast<double>(model.block_bytes()));
  }
};

struct RunLimits {
  double warm_up_share = 0.1;  ///< share of the arrivals' time; requests in it are not counted
  double drain_s = 60;         ///< after the last arrival, until the run ends
};

struct RunResult {
  Metrics metrics;
  RunRecord record;
  /// Quantiles of the gaps between tokens, by thousandths.
  std::vector<double> gap_quantiles_ms;
};

}  // namespace braid::serving
