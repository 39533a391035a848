// What becomes of a slice that was not delivered: pure functions.
// Source: TENT, 3.4.1: other pairs of NICs, a limited number of times.
#pragma once

#include <algorithm>
#include <cstdint>

namespace braid::transfer {

struct RetryRules {
  uint32_t failures_max = 8;  ///< of one slice, until its request fails
  /// A slice that is overdue again, so long after it was for the first time, fails its request.
  uint64_t overdue_max_ns = 10'000'000'000;
  /// A request that has no usable way for so long fails.
  uint64_t unreachable_ns = 5'000'000'000;
  /// A process of a busy host may not run for so long: what it has not done yet is not late.
  uint64_t overdue_ns_min = 15'000'000;
  double overdue_etas = 4;
  /// Without any progress, of a path that is the last one of its transport.
  uint64_t standby_overdue_ns = 50'000'000;
  /// The same, of a path that is the last of all.
  uint64_t last_overdue_ns = 1'000'000'000;
};

/// After how much time without any progress of its path a posting is overdue.
inline uint64_t overdue_ns(double eta_ns, const RetryRules& rules) {
  const double late_ns = std::min(rules.overdue_etas * eta_ns, 1e15);
  return std::max(rules.overdue_ns_min, static_cast<uint64_t>(late_ns));
}

}  // namespace braid::transfer
