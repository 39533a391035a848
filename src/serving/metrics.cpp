#include "serving/metrics.h"

#include <algorithm>

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

}  // namespace

int64_t open_gap_us(const RequestRecord& request, int64_t run_end_us) {
  const bool is_open = request.end_us == kNever && request.first_token_us != kNever;
  return is_open ? run_end_us - request.last_token_us : 0;
}

Metrics summarize(const RunRecord& run, const Histogram& gaps_us) {
  Metrics metrics;
  std::vector<int64_t> ttfts_us, longest_us;
  double ttft = 0, means = 0, longest = 0, good = 0, strict = 0, finished = 0;
  double gaps = 0, late_gaps = 0, rotations = 0, recomputes = 0;
  for (const RequestRecord& request : run.requests) {
    if (request.arrival_us < run.from_us) continue;
    ++metrics.requests;
    const Verdict verdict = judge(request);
    ttft += verdict.ttft;
    means += verdict.mean;
    longest += verdict.longest;
    good += verdict.ttft && verdict.mean;
    strict += verdict.ttft && verdict.longest;
    finished += request.end_us != kNever;
    const int64_t open_us = open_gap_us(request, run.end_us);
    const bool open_is_late = open_us > request.slo.tbt_us;
    gaps += static_cast<double>(request.gaps()) + open_is_late;
    late_gaps += request.late_gaps + open_is_late;
    const int64_t first_us = request.first_token_us == kNever ? run.end_us : request.first_token_us;
    ttfts_us.push_back(first_us - request.arrival_us);
    longest_us.push_back(std::max(request.longest_gap_us, open_us));
    rotations += request.rotations;
    recomputes += request.recomputes;
  }
  const auto count = static_cast<double>(metrics.requests);
  const double seconds = static_cast<double>(run.until_us - run.from_us) * 1e-6;
  metrics.finished = share_of(finished, count);
  metrics.ttft_attainment = share_of(ttft, count);
  metrics.tbt_tokens = gaps > 0 ? 1 - late_gaps / gaps : 1;
  metrics.tbt_means = share_of(means, count);
  metrics.tbt_longest = share_of(longest, count);
  metrics.ttft_p50_s = quantile(ttfts_us, 0.50) * 1e-6;
  metrics.ttft_p99_s = quantile(ttfts_us, 0.99) * 1e-6;
  metrics.tbt_p50_ms = static_cast<double>(gaps_us.quantile(500)) * 1e-3;
  metrics.tbt_p99_ms = static_cast<double>(gaps_us.quantile(990)) * 1e-3;
  metrics.longest_gap_p99_ms = quantile(longest_us, 0.99) * 1e-3;
  metrics.goodput_rps = share_of(good, seconds);
  metrics.strict_goodput_rps = share_of(strict, seconds);
  metrics.throughput_tps = share_of(static_cast<double>(run.tokens), seconds);
  metrics.rotations = share_of(rotations, count);
  metrics.recomputes = share_of(recomputes, count);
  metrics.stall_share =
      share_of(static_cast<double>(run.stalled_us), static_cast<double>(run.busy_us));
  const double whole_s = static_cast<double>(run.end_us) * 1e-6;
  metrics.load_gbps = share_of(static_cast<double>(run.loaded_bytes) * 1e-9, whole_s);
  metrics.save_gbps = share_of(static_cast<double>(run.saved_bytes) * 1e-9, whole_s);
  return metrics;
}

}  // namespace braid::serving
