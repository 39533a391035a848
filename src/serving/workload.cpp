#include "serving/workload.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "serving/random.h"

namespace braid::serving {
namespace {

/// The error of a model that ranks lengths. Assumed: a normal deviation of this size on the
/// logarithm of a length, which leaves a rank correlation (Kendall tau) of about 0.6 for chat-like
/// lengths.
constexpr double kRankNoise = 0.6;
constexpr int64_t kBatchFactor = 10;

uint32_t draw_length(Random& random, const Lengths::LogNormal& length) {
  const double mu = std::log(length.mean) - length.sigma * length.sigma / 2;
  const double value = std::exp(mu + length.sigma * random.normal());
  return static_cast<uint32_t>(
      std::clamp(std::round(value), 1.0, static_cast<double>(length.most)));
}

Request request_of(const TraceEntry& entry, int64_t arrival_us, const Slo& slo, Random& random) {
  Request request;
  request.slo = slo;
  request.line = entry.line;
  request.arrival_us = arrival_us;
  request.prompt_tokens = entry.prompt_tokens;
  request.output_tokens = entry.output_tokens;
  request.length_rank = entry.output_tokens * std::exp(kRankNoise * random.normal());
  request.chunks = entry.chunks;
  return request;
}

}  // namespace

TraceEntry Lengths::draw(Random& random) const {
  if (trace_) return trace_->entries[random.below(trace_->entries.size())];
  TraceEntry entry;
  entry.prompt_tokens = draw_length(random, prompt_);
  entry.output_tokens = draw_length(random, output_);
  return entry;
}

Lengths chat_like() {
  return {
      "chat-like",
      "log-normal; means 161 and 338 tokens (ShareGPT in PagedAttention, SOSP 2023, figure 11), "
      "sigma 1.2 and 0.9 assumed",
      {161, 1.2, 2048},
      {338, 0.9, 2048}};
}

Lengths long_chat_like() {
  // A log-normal of median 1730 has the mean 1730 * exp(sigma^2 / 2).
  constexpr double kPromptSigma = 0.93, kOutputSigma = 0.54;
  return {"long-chat-like",
          "log-normal; medians 1730 and 415, ninth deciles 5696 and 834 tokens "
          "(openchat_sharegpt4 in Sarathi-Serve, OSDI 2024, table 2)",
          {1730 * std::exp(kPromptSigma * kPromptSigma / 2), kPromptSigma, 8192},
          {415 * std::exp(kOutputSigma * kOutputSigma / 2), kOutputSigma, 2048}};
}

Workload poisson_workload(const Lengths& lengths, const Arrivals& arrivals, uint64_t seed) {
  Random gaps(seed * 3), drawn(seed * 3 + 1), classes(seed * 3 + 2);
  Workload workload;
  workload.chunk_tokens = lengths.chunk_tokens();
  workload.trace = lengths.trace_name();
  // Scaling gaps of rate 1 makes every rate serve the same requests in the same order.
  double at_s = gaps.exponential(1) / arrivals.rate_rps;
  for (; at_s < arrivals.seconds; at_s += gaps.exponential(1) / arrivals.rate_rps) {
    Request request =
        request_of(lengths.draw(drawn), std::llround(at_s * 1e6), arrivals.slo, drawn);
    if (classes.uniform() < arrivals.batch_share) {
      request.priority = 1;
      request.slo.ttft_us *= kBatchFactor;
      request.slo.tbt_us *= kBatchFactor;
    }
    workload.requests.push_back(std::move(request));
  }
  return workload;
}

namespace {

int64_t span_us(const Trace& trace) {
  return std::max<int64_t>(trace.entries.back().arrival_us, 1);
}

double stretch_factor(const Trace& trace, double rate_rps) {
  const double recorded_rps =
      static_cast<double>(trace.entries.size()) / (static_cast<double>(span_us(trace)) * 1e-6);
  return rate_rps > 0 ? recorded_rps / rate_rps : 1;
}

}  // namespace

Workload stretch_of_trace(const Trace& trace, const Arrivals& arrivals, uint64_t seed) {
  const double factor = stretch_factor(trace, arrivals.rate_rps);
  const size_t count = trace.entries.size();
  Workload workload;
  workload.chunk_tokens = trace.chunk_tokens;
  workload.trace = trace.name;
  Random random(seed);
  const size_t first = random.below(count);
  for (size_t index = first; index < first + count; ++index) {
    const TraceEntry& entry = trace.entries[index % count];
    const int64_t recorded_us = entry.arrival_us - trace.entries[first].arrival_us +
                                (index < count ? 0 : span_us(trace) + 1);
    const double at_us = static_cast<double>(recorded_us) * factor;
    if (at_us > arrivals.seconds * 1e6) break;
    workload.requests.push_back(request_of(entry, std::llround(at_us), arrivals.slo, random));
  }
  return workload;
}

}  // namespace braid::serving
