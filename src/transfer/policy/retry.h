// Rules for slices that were not delivered: pure functions.
// Source: TENT, 3.4.1: other pairs of NICs, a limited number of times.
#pragma once

#include <algorithm>
#include <cstdint>

namespace braid::transfer {

struct RetryRules {
  uint32_t failures_max = 8;  ///< failures of one slice before its request fails
  /// If a slice is overdue again this long after it first was, its request fails.
  uint64_t overdue_max_ns = 10'000'000'000;
  /// A request without a usable way for this long fails.
  uint64_t unreachable_ns = 5'000'000'000;
  /// No posting is overdue earlier: on a busy host a process may not run for this long.
  uint64_t overdue_ns_min = 15'000'000;
  double overdue_etas = 4;
  /// How long the last usable path of a transport may make no progress.
  uint64_t standby_overdue_ns = 50'000'000;
  /// The same for the last usable path of all.
  uint64_t last_overdue_ns = 1'000'000'000;
};

/// How long its path must make no progress before a posting is overdue.
inline uint64_t overdue_ns(double eta_ns, const RetryRules& rules) {
  const double late_ns = std::min(rules.overdue_etas * eta_ns, 1e15);
  return std::max(rules.overdue_ns_min, static_cast<uint64_t>(late_ns));
}

}  // namespace braid::transfer
