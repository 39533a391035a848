#include "tools/serving/experiment.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <limits>
#include <mutex>
#include <thread>

#include "base/try.h"
#include "serving/policies/make_policy.h"
#include "serving/simulator/simulate.h"

namespace braid::tools::serving_figures {
namespace {

// The knee is looked for from this rate up by doubling, then by bisection, also below it. Rates are
// requests a second. A run of fewer requests would tell little, and one of none is an error.
constexpr double kFirstRate = 0.5, kMostRate = 1024, kFewestRequests = 10;
constexpr int kBisections = 7;
// Of all GPUs; they take some 500 bytes each.
constexpr double kMostRequests = 4e6;

// Student's t for a two-sided 95 % interval, by degrees of freedom.
double student_t(size_t freedom) {
  constexpr std::array<double, 31> kTable = {
      0,     12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228,
      2.201, 2.179,  2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086, 2.080,
      2.074, 2.069,  2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042};
  if (freedom < kTable.size()) return kTable[freedom];
  // Cornish and Fisher's expansion of t from the normal quantile z, right to 0.001 here.
  constexpr double z = 1.959964, z3 = z * z * z, z5 = z3 * z * z;
  const auto n = static_cast<double>(freedom);
  return z + (z3 + z) / (4 * n) + (5 * z5 + 16 * z3 + 3 * z) / (96 * n * n);
}

}  // namespace

std::string Case::key() const {
  const auto& e = engine;
  const auto& c = e.constants;
  return fmt::format(
      "{} {} {} {} {} {} {} {} {} | {} {} {} {} {} {} | {} {} {} | {} {} {} {} {} {} | "
      "{} {} {} {} {} {} {} | {} {} {} {} {} {} {} {} {} {} {}",
      e.model.name, e.gpu.name, e.gpu.hbm_bytes, e.hbm_share, e.activation_bytes, e.host_bytes,
      e.token_budget, e.max_running, e.steps_wait_for_copies, e.link.load_gbps, e.link.save_gbps,
      e.link.both_gbps, e.link.one_way_at_a_time, e.link.eager, e.link.start_us, e.host.load_gbps,
      e.host.save_gbps, e.host.both_gbps, policy, parameters.lag.alpha, parameters.lag.beta_tbt,
      parameters.lag.beta_ttft, parameters.transfer_blocks, parameters.late_only,
      trace ? "trace" : lengths->name(), arrivals.rate_rps, arrivals.seconds, arrivals.batch_share,
      arrivals.slo.ttft_us, arrivals.slo.tbt_us, gpus, c.matmul_tflops, c.weight_gbps, c.matmul_us,
      c.attention_gbps, c.attention_us, c.prefill_tflops, c.prefill_us, c.glue_gbps, c.glue_us,
      c.sequence_us, c.step_us);
}

Estimate estimate(const std::vector<double>& values) {
  Estimate result;
  const auto count = static_cast<double>(values.size());
  for (const double value : values) result.mean += value / count;
  if (values.size() < 2) {
    result.half_width = std::numeric_limits<double>::quiet_NaN();
    return result;
  }
  double squares = 0;
  for (const double value : values) squares += (value - result.mean) * (value - result.mean);
  result.half_width = student_t(values.size() - 1) * std::sqrt(squares / (count - 1) / count);
  return result;
}

std::vector<double> by_seed(const Results& results, const Metric& metric) {
  std::vector<double> values;
  for (const std::vector<RunResult>& gpus : results) values.push_back(metric(gpus.front().metrics));
  return values;
}

Result<std::vector<RunResult>> Laboratory::run_one(const Case& of, int seed) const {
  const double requests = of.arrivals.rate_rps * of.arrivals.seconds * of.gpus;
  if (!of.trace && requests > kMostRequests)
    return Status::error(fmt::format("{:g} requests are too many for one run, which may have {:g}",
                                     requests, kMostRequests),
                         "Give a lower rate, or fewer --seconds");
  BRAID_LET(policy, serving::make_policy(of.policy, of.parameters));
  std::vector<serving::Workload> workloads;
  for (int gpu = 0; gpu < of.gpus; ++gpu) {
    const auto number = static_cast<uint64_t>(seed * 100 + gpu);
    workloads.push_back(of.trace ? serving::stretch_of_trace(*of.trace, of.arrivals, number)
                                 : serving::poisson_workload(*of.lengths, of.arrivals, number));
  }
  std::vector<const serving::Workload*> borrowed;
  for (const serving::Workload& workload : workloads) borrowed.push_back(&workload);
  return serving::simulate(of.engine, *policy, borrowed);
}

Status Laboratory::run(const std::vector<Case>& cases) {
  struct Job {
    const Case* of;
    int seed;
    std::vector<RunResult>* result;
  };
  std::vector<Job> jobs;
  for (const Case& one : cases) {
    auto [at, is_new] = results_.try_emplace(one.key());
    if (!is_new) continue;
    at->second = std::make_unique<Results>(static_cast<size_t>(seeds_));
    for (int seed = 1; seed <= seeds_; ++seed)
      jobs.push_back({&one, seed, &(*at->second)[static_cast<size_t>(seed - 1)]});
  }
  std::atomic<size_t> next{0};
  std::mutex mutex;
  Status first_error;
  const auto work = [&] {
    for (size_t index = next++; index < jobs.size(); index = next++) {
      const Job& job = jobs[index];
      auto result = run_one(*job.of, job.seed);
      if (result.ok()) {
        *job.result = std::move(result).value();
        for (RunResult& gpu : *job.result) gpu.record.requests = {};  // large, and summarized
        continue;
      }
      const std::lock_guard lock(mutex);
      if (first_error.ok())
        first_error =
            Status::error(fmt::format("{} at {:.2f} requests a second: {}", job.of->policy,
                                      job.of->arrivals.rate_rps, result.status().message()));
      next = jobs.size();
    }
  };
  std::vector<std::thread> threads;
  for (int thread = 0; thread < threads_; ++thread) threads.emplace_back(work);
  for (std::thread& thread : threads) thread.join();
  return first_error;
}

Result<double> Laboratory::attainment_at(Case like, double rate_rps) {
  like.arrivals.rate_rps = rate_rps;
  Laboratory alone(seeds_, threads_);  // what it has run is forgotten again
  BRAID_TRY(alone.run({like}));
  return estimate(by_seed(alone.results(like), [](const Metrics& m) { return m.ttft_attainment; }))
      .mean;
}

Result<double> Laboratory::search_knee(const Case& like) {
  const auto none = [&](double rate_rps, const char* share) {
    return Status::error(
        fmt::format("FCFS has no knee with a TTFT of {:g} ms: at {:g} requests/s it serves {} "
                    "{:.0f} % of them in time",
                    static_cast<double>(like.arrivals.slo.ttft_us) * 1e-3, rate_rps, share,
                    kKneeAttainment * 100),
        "Give another --ttft-ms, more --seconds or a longer trace; or, for one run, --rate");
  };
  double low = 0, high = kFirstRate;
  for (;; low = high, high *= 2) {
    BRAID_LET(attained, attainment_at(like, high));
    if (attained < kKneeAttainment) break;
    if (high >= kMostRate) return none(high, "at least");
  }
  for (int step = 0; step < kBisections; ++step) {
    const double middle = (low + high) / 2;
    if (middle * like.arrivals.seconds < kFewestRequests) break;
    BRAID_LET(attained, attainment_at(like, middle));
    (attained < kKneeAttainment ? high : low) = middle;
  }
  if (low == 0) return none(high, "less than");
  return low;
}

Result<double> Laboratory::knee_rps(Case like) {
  like.policy = "fcfs_recompute";
  like.parameters = {};
  like.gpus = 1;
  like.engine.steps_wait_for_copies = false;
  like.arrivals.rate_rps = 0;
  const std::string key = like.key();
  if (const auto known = knees_.find(key); known != knees_.end()) return known->second;
  BRAID_LET(knee, search_knee(like));
  return knees_[key] = knee;
}

}  // namespace braid::tools::serving_figures
