// A serving engine in virtual time: continuous batching, chunked prefill, a token budget for each
// step, blocks of KV cache on both sides, and a policy that decides between steps. Equal inputs
// give equal results, bit for bit.
#pragma once

#include <cstdint>
#include <vector>

#include "base/status.h"
#include "serving/cost/step_time.h"
#include "serving/hardware.h"
#include "serving/metrics.h"
#include "serving/policies/policy.h"
#include "serving/workload.h"

namespace braid::serving {

struct EngineConfig {
  Model model;
  StepConstants constants;
  Gpu gpu;
  Link link;
  HostMemory host;
  double hbm_share = 0.9;  ///< of the GPU's memory for weights, activations and KV caches
  double activation_bytes = 2e9;
  double host_bytes = 400e9;    ///< for KV caches, by GPU (SuperInfer section 5.2)
  uint32_t token_budget = 512;  ///< of a step
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

/// One GPU for each workload, all on one host. Fails for a request that can never fit on a GPU, and
/// for a policy that makes no progress.
Result<std::vector<RunResult>> simulate(const EngineConfig& config, const Policy& policy,
                                        const std::vector<const Workload*>& workloads,
                                        const RunLimits& limits = {});

}  // namespace braid::serving
