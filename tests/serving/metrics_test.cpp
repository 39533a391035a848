#include "serving/metrics.h"

#include <gtest/gtest.h>

namespace braid::serving {
namespace {

RequestRecord finished(int64_t arrival_us, int64_t ttft_us, std::vector<int64_t> gaps_us) {
  RequestRecord request;
  request.arrival_us = arrival_us;
  request.first_token_us = request.last_token_us = arrival_us + ttft_us;
  request.tokens = 1;
  for (const int64_t gap_us : gaps_us) {
    request.last_token_us += gap_us;
    request.longest_gap_us = std::max(request.longest_gap_us, gap_us);
    request.late_gaps += gap_us > request.slo.tbt_us;
    ++request.tokens;
  }
  request.end_us = request.last_token_us;
  return request;
}

RunRecord run_of(std::vector<RequestRecord> requests) {
  RunRecord run;
  run.requests = std::move(requests);
  run.until_us = 10'000'000;
  run.end_us = 60'000'000;
  return run;
}

TEST(Metrics, TheThreeReadingsOfTbtDisagree) {
  // One late gap of ten: the mean is in time, the longest is not.
  const RunRecord run = run_of({finished(0, 1'000'000, {50'000, 50'000, 50'000, 50'000, 250'000}),
                                finished(0, 6'000'000, {50'000, 50'000, 50'000, 50'000, 50'000})});
  const Metrics metrics = summarize(run, Histogram());
  EXPECT_DOUBLE_EQ(metrics.tbt_tokens, 0.9);
  EXPECT_DOUBLE_EQ(metrics.tbt_means, 1);
  EXPECT_DOUBLE_EQ(metrics.tbt_longest, 0.5);
  EXPECT_DOUBLE_EQ(metrics.ttft_attainment, 0.5);
  EXPECT_DOUBLE_EQ(metrics.goodput_rps, 0.1);
  EXPECT_DOUBLE_EQ(metrics.strict_goodput_rps, 0);
}

TEST(Metrics, WhatIsUnfinishedHasMissed) {
  RequestRecord silent;  // no token ever
  RequestRecord stuck = finished(0, 1'000'000, {50'000});
  stuck.end_us = kNever;
  const Metrics metrics =
      summarize(run_of({silent, stuck, finished(0, 1'000'000, {50'000, 50'000})}), Histogram());
  EXPECT_EQ(metrics.requests, 3u);
  EXPECT_DOUBLE_EQ(metrics.finished, 1.0 / 3);
  EXPECT_DOUBLE_EQ(metrics.ttft_attainment, 2.0 / 3);
  EXPECT_DOUBLE_EQ(metrics.tbt_means, 1.0 / 3);
  EXPECT_DOUBLE_EQ(metrics.tbt_longest, 1.0 / 3);
  EXPECT_DOUBLE_EQ(metrics.tbt_tokens, 0.75);  // the gap that never ended is a late one
  EXPECT_DOUBLE_EQ(metrics.ttft_p99_s, 60);    // at least
}

TEST(Metrics, WhatComesWhileTheRunWarmsUpIsNotCounted) {
  RunRecord run = run_of({finished(0, 9'000'000, {}), finished(5'000'000, 1'000'000, {})});
  run.from_us = 1'000'000;
  const Metrics metrics = summarize(run, Histogram());
  EXPECT_EQ(metrics.requests, 1u);
  EXPECT_DOUBLE_EQ(metrics.ttft_attainment, 1);
}

}  // namespace
}  // namespace braid::serving
