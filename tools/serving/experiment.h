// Many runs of the simulator: each case with each seed, on several threads, each run once. Policies
// are compared on the same requests, so that differences are paired by seed.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "serving/policies/policy.h"
#include "serving/simulator/config.h"
#include "serving/workload.h"

namespace braid::tools::serving_figures {

using serving::EngineConfig;
using serving::Lengths;
using serving::Metrics;
using serving::PolicyParameters;
using serving::RunResult;
using serving::Trace;

/// Of TTFT, by FCFS at the knee.
inline constexpr double kKneeAttainment = 0.90;

/// What one run depends on, but for the seed.
struct Case {
  EngineConfig engine;
  std::string policy;
  PolicyParameters parameters{};
  std::shared_ptr<const Lengths> lengths;  ///< Poisson arrivals of `arrivals`; or
  std::shared_ptr<const Trace> trace;      ///< this trace, stretched to the rate of `arrivals`
  serving::Arrivals arrivals{};
  int gpus = 1;

  /// Equal for equal cases.
  std::string key() const;
};

/// Results by seed, 1 to n; with several GPUs those of all of them.
using Results = std::vector<std::vector<RunResult>>;

/// Mean and half the width of the 95 % interval by Student's t over seeds. With one seed the
/// interval is unknown: NaN.
struct Estimate {
  double mean = 0;
  double half_width = 0;
};
Estimate estimate(const std::vector<double>& values);

using Metric = std::function<double(const Metrics&)>;

/// By seed, of the first GPU: however many there are, it serves the same requests.
std::vector<double> by_seed(const Results& results, const Metric& metric);

class Laboratory {
 public:
  Laboratory(int seeds, int threads) : seeds_(seeds), threads_(threads) {}

  int seeds() const { return seeds_; }
  /// Runs what has not run before. The first error ends it, and names the case.
  Status run(const std::vector<Case>& cases);
  /// Of a case that has run.
  const Results& results(const Case& of) const { return *results_.at(of.key()); }

  /// The largest rate at which FCFS with recomputation serves 90 % of the requests within their
  /// TTFT objective, on average over all seeds, found by bisection over rates; `like` says on what.
  /// An error if it does so at no rate, or at all of them.
  Result<double> knee_rps(Case like);

 private:
  Result<std::vector<RunResult>> run_one(const Case& of, int seed) const;
  Result<double> attainment_at(Case like, double rate_rps);
  Result<double> search_knee(const Case& like);

  int seeds_, threads_;
  std::map<std::string, std::unique_ptr<Results>> results_;
  std::map<std::string, double> knees_;
};

}  // namespace braid::tools::serving_figures
