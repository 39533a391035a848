// A scheduling policy: a pure function of what it sees. No clock, no thread, no driver, no memory
// of earlier decisions: the same view, its requests in any order, gives the same decision.
#pragma once

#include <cstdint>
#include <string_view>

#include "serving/request_state.h"
#include "serving/virtual_lag.h"

namespace braid::serving {

/// What becomes of the KV cache of a request that is preempted.
enum class Eviction {
  kRotate,     ///< kept on the host
  kRecompute,  ///< given up: prompt and generated tokens are computed again
  kOffload     ///< kept on the host, where the CPU attends to it: it goes on generating
};

/// KV caches that the CPU reads for attention: half of what a Grace's memory carries (SuperInfer,
/// section 3.3: 384 GB/s). Assumed.
inline constexpr double kCpuAttentionGbps = 192;

class Policy {
 public:
  virtual ~Policy() = default;
  virtual std::string_view name() const = 0;
  virtual Eviction eviction() const = 0;
  virtual Decision decide(const View& view) const = 0;
};

/// What policies that have parameters are made with.
struct PolicyParameters {
  LagParameters lag{};
  /// `paper`: B_xfer, section 5.2.
  uint32_t transfer_blocks = 2400;
  /// `braid`: only requests that are late, or will be by the end of the next step, preempt others.
  bool late_only = true;
};

}  // namespace braid::serving
