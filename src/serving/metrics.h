// The service that the senders of requests got in a run.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/histogram.h"
#include "serving/request_state.h"

namespace braid::serving {

inline constexpr int64_t kNever = -1;

/// One request's history. Times are microseconds.
struct RequestRecord {
  int64_t arrival_us = 0;
  Slo slo;
  int64_t first_token_us = kNever;
  int64_t last_token_us = kNever;
  int64_t end_us = kNever;
  uint32_t tokens = 0;
  uint32_t late_gaps = 0;  ///< longer than the objective
  int64_t longest_gap_us = 0;
  uint32_t rotations = 0;   ///< moves of blocks to the host
  uint32_t recomputes = 0;  ///< times that its KV cache was discarded

  int64_t gaps() const { return tokens > 0 ? int64_t{tokens} - 1 : 0; }
};

/// The state of the GPU, once a second.
struct Sample {
  int64_t at_us;
  double kv_share;  ///< of the KV cache in use
  uint32_t waiting, running, paused;
};

struct RunRecord {
  std::vector<RequestRecord> requests;
  std::vector<Sample> timeline;
  int64_t from_us = 0;   ///< the end of the warm-up: earlier requests are not counted
  int64_t until_us = 0;  ///< the last arrival
  int64_t end_us = 0;    ///< requests that are unfinished then have missed what they wait for
  uint64_t tokens = 0;   ///< between from_us and until_us
  int64_t busy_us = 0;
  int64_t stalled_us = 0;  ///< time that finished steps waited for copies
  uint64_t steps = 0;
  uint64_t loaded_bytes = 0;
  uint64_t saved_bytes = 0;
};

/// How long a request has waited for its next token at the end of the run; 0 if it waits for none.
/// A gap that is late by then counts as one of this length, its lower bound.
int64_t open_gap_us(const RequestRecord& request, int64_t run_end_us);

/// Figures of the requests that count. Shares are fractions of 1. An unfinished request has missed
/// the objectives of its gaps; its first token counts if it came in time.
struct Metrics {
  uint64_t requests = 0;
  double finished = 0;
  double ttft_attainment = 0;
  double tbt_tokens = 0;   ///< share of gaps between tokens within the objective
  double tbt_means = 0;    ///< share of requests whose mean gap is within it
  double tbt_longest = 0;  ///< share of requests whose longest gap is within it
  double ttft_p50_s = 0, ttft_p99_s = 0;
  double tbt_p50_ms = 0, tbt_p99_ms = 0;
  double longest_gap_p99_ms = 0;
  double goodput_rps = 0;         ///< requests with TTFT and mean gap within their objectives
  double strict_goodput_rps = 0;  ///< requests with TTFT and every gap within their objectives
  double throughput_tps = 0;      ///< tokens generated
  double rotations = 0;           ///< a request
  double recomputes = 0;          ///< a request
  double stall_share = 0;         ///< share of the time that the GPU had work
  double load_gbps = 0, save_gbps = 0;
};

/// `gaps_us`: all gaps of the requests that count, including late open ones.
Metrics summarize(const RunRecord& run, const Histogram& gaps_us);

}  // namespace braid::serving
