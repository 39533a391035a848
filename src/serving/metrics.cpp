#include "serving/metrics.h"

#include <algorithm>
#include <vector>

namespace braid::serving {
namespace {

// The smallest value that `share` of the values do not exceed.
double quantile(std::vector<int64_t>& values, double share) {
  if (values.empty()) return 0;
  const auto rank = static_cast<size_t>(share * static_cast<double>(values.size() - 1) + 0.5);
  std::nth_element(values.begin(), values.begin() + static_cast<int64_t>(rank), values.end());
  return static_cast<double>(values[rank]);
}

double share_of(double part, double whole) { return whole > 0 ? part / whole : 0; }

struct Verdict {
  bool ttft, mean, longest;
};

Verdict judge(const RequestRecord& request) {
  const bool is_finished = request.end_us != kNever;
  const int64_t spread_us = request.last_token_us - request.first_token_us;
  return {
      request.first_token_us != kNever &&
          request.first_token_us - request.arrival_us <= request.slo.ttft_us,
      is_finished && spread_us <= request.gaps() * request.slo.tbt_us,
      is_finished && request.longest_gap_us <= request.slo.tbt_us,
  };
}

// Over the requests that count.
struct Sums {
  uint64_t requests = 0;
  double ttft = 0, means = 0, longest = 0, good = 0, strict = 0, finished = 0;
  double gaps = 0, late_gaps = 0, rotations = 0, recomputes = 0;
  std::vector<int64_t> ttfts_us, longest_us;
};

void add_verdict(Sums& sums, const Verdict& verdict) {
  sums.ttft += verdict.ttft;
  sums.means += verdict.mean;
  sums.longest += verdict.longest;
  sums.good += verdict.ttft && verdict.mean;
  sums.strict += verdict.ttft && verdict.longest;
}

void add_request(Sums& sums, const RequestRecord& request, int64_t run_end_us) {
  ++sums.requests;
  add_verdict(sums, judge(request));
  sums.finished += request.end_us != kNever;
  const int64_t open_us = open_gap_us(request, run_end_us);
  const bool open_is_late = open_us > request.slo.tbt_us;
  sums.gaps += static_cast<double>(request.gaps()) + open_is_late;
  sums.late_gaps += request.late_gaps + open_is_late;
  const int64_t first_us = request.first_token_us == kNever ? run_end_us : request.first_token_us;
  sums.ttfts_us.push_back(first_us - request.arrival_us);
  sums.longest_us.push_back(std::max(request.longest_gap_us, open_us));
  sums.rotations += request.rotations;
  sums.recomputes += request.recomputes;
}

Sums sum(const RunRecord& run) {
  Sums sums;
  for (const RequestRecord& request : run.requests) {
    if (request.arrival_us < run.from_us) continue;
    add_request(sums, request, run.end_us);
  }
  return sums;
}

}  // namespace

int64_t open_gap_us(const RequestRecord& request, int64_t run_end_us) {
  const bool is_open = request.end_us == kNever && request.first_token_us != kNever;
  return is_open ? run_end_us - request.last_token_us : 0;
}

Metrics summarize(const RunRecord& run, const Histogram& gaps_us) {
  Sums sums = sum(run);
  const auto count = static_cast<double>(sums.requests);
  const double seconds = static_cast<double>(run.until_us - run.from_us) * 1e-6;
  Metrics metrics;
  metrics.requests = sums.requests;
  metrics.finished = share_of(sums.finished, count);
  metrics.ttft_attainment = share_of(sums.ttft, count);
  metrics.tbt_tokens = sums.gaps > 0 ? 1 - sums.late_gaps / sums.gaps : 1;
  metrics.tbt_means = share_of(sums.means, count);
  metrics.tbt_longest = share_of(sums.longest, count);
  metrics.ttft_p50_s = quantile(sums.ttfts_us, 0.50) * 1e-6;
  metrics.ttft_p99_s = quantile(sums.ttfts_us, 0.99) * 1e-6;
  metrics.tbt_p50_ms = static_cast<double>(gaps_us.quantile(500)) * 1e-3;
  metrics.tbt_p99_ms = static_cast<double>(gaps_us.quantile(990)) * 1e-3;
  metrics.longest_gap_p99_ms = quantile(sums.longest_us, 0.99) * 1e-3;
  metrics.goodput_rps = share_of(sums.good, seconds);
  metrics.strict_goodput_rps = share_of(sums.strict, seconds);
  metrics.throughput_tps = share_of(static_cast<double>(run.tokens), seconds);
  metrics.rotations = share_of(sums.rotations, count);
  metrics.recomputes = share_of(sums.recomputes, count);
  metrics.stall_share =
      share_of(static_cast<double>(run.stalled_us), static_cast<double>(run.busy_us));
  const double whole_s = static_cast<double>(run.end_us) * 1e-6;
  metrics.load_gbps = share_of(static_cast<double>(run.loaded_bytes) * 1e-9, whole_s);
  metrics.save_gbps = share_of(static_cast<double>(run.saved_bytes) * 1e-9, whole_s);
  return metrics;
}

}  // namespace braid::serving
