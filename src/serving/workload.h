// The requests of one run: lengths and arrivals, from a trace or drawn from a seed. Equal seeds
// give equal requests for every policy (common random numbers).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "serving/request_state.h"
#include "serving/trace.h"

namespace braid::serving {

struct Request {
  int64_t arrival_us = 0;
  uint32_t prompt_tokens = 0;
  uint32_t output_tokens = 0;
  uint8_t priority = 0;
  Slo slo{};
  double length_rank = 0;          ///< output_tokens as a ranking model sees it
  std::vector<uint32_t> chunks{};  ///< of the prompt, for prefix sharing
  uint32_t line = 0;               ///< of the trace; 0: it comes from none
};

struct Workload {
  std::vector<Request> requests;  ///< by arrival; a request's id is its index here
  uint32_t chunk_tokens = 0;      ///< 0: no prefixes are shared
  std::string trace{};            ///< the file whose lines the requests are; empty: none
};

/// The source of lengths: log-normal distributions, or the pairs of a trace.
class Lengths {
 public:
  struct LogNormal {
    double mean;
    double sigma;  ///< of the logarithm
    uint32_t most;
  };
  Lengths(std::string name, std::string source, LogNormal prompt, LogNormal output)
      : name_(std::move(name)), source_(std::move(source)), prompt_(prompt), output_(output) {}
  Lengths(std::string name, std::string source, std::shared_ptr<const Trace> trace)
      : name_(std::move(name)), source_(std::move(source)), trace_(std::move(trace)) {}

  const std::string& name() const { return name_; }
  const std::string& source() const { return source_; }
  /// Draws the lengths of a prompt and its output. From a trace: one random entry, with its chunks.
  TraceEntry draw(class Random& random) const;
  uint32_t chunk_tokens() const { return trace_ ? trace_->chunk_tokens : 0; }
  /// The trace's file; empty: lengths are drawn from distributions.
  std::string trace_name() const { return trace_ ? trace_->name : std::string(); }

 private:
  std::string name_, source_;
  LogNormal prompt_{}, output_{};
  std::shared_ptr<const Trace> trace_;
};

/// Short questions and long answers, with the moments that PagedAttention (SOSP 2023, figure 11)
/// published for ShareGPT. They are not ShareGPT.
Lengths chat_like();
/// Conversations whose history is part of the prompt, with the moments that Sarathi-Serve (OSDI
/// 2024, table 2) published.
Lengths long_chat_like();

struct Arrivals {
  double rate_rps = 1;
  double seconds = 300;
  double batch_share = 0;  ///< share in a second class, whose objectives are ten times as long
  Slo slo{};               ///< of the first class
};

/// Arrivals of a Poisson process.
Workload poisson_workload(const Lengths& lengths, const Arrivals& arrivals, uint64_t seed);

/// Some seconds of the trace, from a random request on; the first request follows the last. Time is
/// stretched so that `rate_rps` requests come on average (0: as recorded).
Workload stretch_of_trace(const Trace& trace, const Arrivals& arrivals, uint64_t seed);

}  // namespace braid::serving
