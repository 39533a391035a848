// A serving engine in virtual time: continuous batching, chunked prefill, a token budget for each
// step, blocks of KV cache on both sides, and a policy that decides between steps. Equal inputs
// give equal results, bit for bit.
#pragma once

#include <vector>

#include "base/status.h"
#include "serving/policies/policy.h"
#include "serving/simulator/config.h"
#include "serving/workload.h"

namespace braid::serving {

/// Simulates one GPU for each workload, all on one host. Fails if a request can never fit on a GPU,
/// or if the policy makes no progress.
Result<std::vector<RunResult>> simulate(const EngineConfig& config, const Policy& policy,
                                        const std::vector<const Workload*>& workloads,
                                        const RunLimits& limits = {});

}  // namespace braid::serving
