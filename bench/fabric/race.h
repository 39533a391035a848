// braid's engine and the raw libfabric loop, in turns, between the same two processes, with the
// same memory.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "fabric/ofi/quirks.h"

namespace braid::bench {

struct RaceOptions {
  const fabric::ofi::Quirks* quirks = nullptr;
  bool is_paged = false;
  std::vector<uint64_t> sizes_bytes;  ///< of writes, or of pages
  int turns = 7;
  double turn_seconds = 0.2;
};

struct RaceResult {
  uint64_t size_bytes = 0;
  double braid_gbps = 0;  ///< 10^9 bytes a second; medians
  double plain_gbps = 0;
  double ratio = 0;  ///< the median of the turns' own
  bool is_verified = false;
};

/// Of a write, or of a page.
uint64_t largest_size_bytes(bool is_paged);

/// Forks: to be called before libfabric is loaded, by a process of one thread.
std::vector<RaceResult> race(const RaceOptions& options);

}  // namespace braid::bench
