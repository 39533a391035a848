#include "serving/simulator/simulate.h"

#include <algorithm>
#include <memory>
#include <string>

#include "base/try.h"
#include "serving/simulator/engine.h"
#include "serving/simulator/transfers.h"
#include "simulation/simulation.h"

namespace braid::serving {
namespace {

constexpr int64_t kDayUs = 86'400'000'000;
constexpr int64_t kMostDays = 50;  // half of the range of picoseconds

std::string gigabytes(double bytes) {
  return std::to_string(static_cast<int64_t>(bytes / 1e9)) + " GB";
}

// "t.csv:3: request 1 of 5000 + 20 tokens", or without a place.
std::string words_of(const Workload& workload, size_t id) {
  const Request& request = workload.requests[id];
  const std::string place = request.line == 0
                                ? std::string()
                                : workload.trace + ":" + std::to_string(request.line) + ": ";
  return place + "request " + std::to_string(id) + " of " + std::to_string(request.prompt_tokens) +
         " + " + std::to_string(request.output_tokens) + " tokens";
}

Status check_requests(const Model& model, uint32_t gpu_blocks, const Workload& workload) {
  for (size_t id = 0; id < workload.requests.size(); ++id) {
    const Request& request = workload.requests[id];
    if (request.arrival_us > kMostDays * kDayUs)
      return Status::error(words_of(workload, id) + " comes after " +
                               std::to_string(request.arrival_us / kDayUs) +
                               " days, and virtual time ends after " + std::to_string(kMostDays),
                           "Leave it out, or give a higher rate");
    const uint32_t blocks =
        model.blocks_of(uint64_t{request.prompt_tokens} + request.output_tokens);
    if (blocks > gpu_blocks)
      return Status::error(words_of(workload, id) + " needs " + std::to_string(blocks) +
                               " blocks of KV cache, and the GPU has " + std::to_string(gpu_blocks),
                           "Leave it out, or give the GPU more memory");
  }
  return {};
}

}  // namespace

Result<uint32_t> EngineConfig::gpu_blocks() const {
  const double left_bytes =
      gpu.hbm_bytes * hbm_share - activation_bytes - static_cast<double>(model.weight_bytes());
  const double blocks = left_bytes / static_cast<double>(model.block_bytes());
  if (blocks < 1)
    return Status::error(std::string(model.name) + " does not fit on " + gpu.name +
                             ": weights of " +
                             gigabytes(static_cast<double>(model.weight_bytes())) + ", and " +
                             gigabytes(gpu.hbm_bytes * hbm_share - activation_bytes) + " for them",
                         "Choose a smaller model");
  return static_cast<uint32_t>(blocks);
}

Result<std::vector<RunResult>> simulate(const EngineConfig& config, const Policy& policy,
                                        const std::vector<const Workload*>& workloads,
                                        const RunLimits& limits) {
  BRAID_LET(gpu_blocks, config.gpu_blocks());
  int64_t last_us = 0;
  for (const Workload* workload : workloads) {
    if (workload->requests.empty())
      return Status::error("a workload has no requests",
                           "Let it last longer, or give a higher rate");
    BRAID_TRY(check_requests(config.model, gpu_blocks, *workload));
    last_us = std::max(last_us, workload->requests.back().arrival_us);
  }
  const int gpus = static_cast<int>(workloads.size());
  simulation::Simulation simulation(Transfers::capacities(config.link, config.host, gpus));
  Transfers transfers(simulation, config.link, gpus);
  std::vector<std::unique_ptr<Engine>> engines;
  for (int gpu = 0; gpu < gpus; ++gpu) {
    engines.push_back(std::make_unique<Engine>(simulation, transfers, gpu, config, gpu_blocks,
                                               policy, *workloads[static_cast<size_t>(gpu)],
                                               limits.warm_up_share));
    engines.back()->start();
  }
  const simulation::Time end =
      simulation::from_us(static_cast<double>(last_us) + limits.drain_s * 1e6);
  const auto is_done = [](const auto& engine) { return engine->is_done(); };
  while (!std::all_of(engines.begin(), engines.end(), is_done) && simulation.step(end)) {
    for (const auto& engine : engines) BRAID_TRY(engine->status());
  }
  std::vector<RunResult> results;
  for (const auto& engine : engines) results.push_back(engine->finish());
  return results;
}

}  // namespace braid::serving
