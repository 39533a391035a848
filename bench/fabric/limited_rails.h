// Does an engine reach the sum of its rails? Two processes in network namespaces of their own, with
// veth pairs between them that `tc tbf` limits.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"

namespace braid::bench {

struct LimitedRailsOptions {
  int rails = 4;
  int megabit = 400;              ///< of each rail, each way
  uint64_t size_bytes = 8 << 20;  ///< of each write; it divides 32 MiB
  int turns = 7;
  double turn_seconds = 2;
};

struct LimitedRailsResult {
  std::string waived;     ///< why nothing was measured; empty: it was
  std::string failed;     ///< what went wrong, so that nothing was measured; empty: nothing did
  double sum_gbps = 0;    ///< what the rails may carry together, headers of TCP and IP included
  double braid_gbps = 0;  ///< 10^9 bytes a second; the median of the turns
  double ratio = 0;
  bool is_verified = false;
};

/// Forks: to be called before libfabric is loaded, by a process of one thread. The namespaces and
/// their links are gone with the processes.
LimitedRailsResult race_limited_rails(const LimitedRailsOptions& options);

}  // namespace braid::bench
