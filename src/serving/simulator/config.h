// What a simulated serving engine is made of, and what comes of a run.
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
  /// Steps end when the copies that were decided on before them have ended (SuperInfer's pipeline,
  /// figure 15). Otherwise requests whose blocks are not there yet sit out.
  bool steps_wait_for_copies = false;

  /// Blocks of KV cache on the GPU; an error says what does not fit.
  Result<uint32_t> gpu_blocks() const;
  uint32_t host_blocks() const {
    return static_cast<uint32_t>(host_bytes / static_cast<double>(model.block_bytes()));
  }
};

struct RunLimits {
  double warm_up_share = 0.1;  ///< of the arrivals' time, whose requests are not counted
  double drain_s = 60;         ///< after the last arrival; then the run ends
};

struct RunResult {
  Metrics metrics;
  RunRecord record;
  /// By thousandths: how long gaps between tokens were.
  std::vector<double> gap_quantiles_ms;
};

}  // namespace braid::serving
