// A scheduling policy: a pure function of its view. It has no clock, no thread, no driver, and no
// memory of earlier decisions. The same view, with its requests in any order, gives the same
// decision.
#pragma once

#include <cstdint>
#include <string_view>

#include "serving/request_state.h"
#include "serving/virtual_lag.h"

namespace braid::serving {

/// The fate of a preempted request's KV cache.
enum class Eviction {
  kRotate,     ///< kept on the host
  kRecompute,  ///< discarded: prompt and generated tokens are computed again
  kOffload     ///< kept on the host, where the CPU computes its attention: it goes on generating
};

/// The rate at which the CPU reads KV caches for attention: half of the rate of a Grace's memory
/// (SuperInfer, section 3.3: 384 GB/s). Assumed.
inline constexpr double kCpuAttentionGbps = 192;

class Policy {
 public:
  virtual ~Policy() = default;
  virtual std::string_view name() const = 0;
  virtual Eviction eviction() const = 0;
  virtual Decision decide(const View& view) const = 0;
};

/// The parameters of all policies that have some.
struct PolicyParameters {
  LagParameters lag{};
  /// `paper`: B_xfer, section 5.2.
  uint32_t transfer_blocks = 2400;
  /// `braid`: a request preempts others only if it is late, or will be by the end of the next step.
  bool late_only = true;
};

}  // namespace braid::serving
