// How a batch is shared if no kernel may run on the target: copy engines carry the first bytes over
// the target's own link, as one batch of the driver, and relays' kernels pull slices of the rest.
// The share of the own link is decided before anything is enqueued; only the relays among each
// other take what they can. Pure, allocates nothing.
#pragma once

#include <cstdint>
#include <span>

#include "multipath/transfer.h"

namespace braid::multipath {

struct DirectionCosts;

struct BatchSplitRequest {
  uint64_t size_bytes = 0;
  uint64_t segments = 1;
  int relays = 0;        ///< at most
  double native_us = 0;  ///< of the whole batch by the driver (cost_model.h)
  bool is_cold = false;  ///< the relays
};

struct BatchSplit {
  uint64_t own_bytes = 0;  ///< for the target's own link
  int relays = 0;          ///< those that begin early enough to carry something
  double expected_us = 0;
};

/// The shares with which all are expected to end together.
BatchSplit split_batch(const DirectionCosts& costs, const BatchSplitRequest& request);

/// The cut nearest to `wanted_bytes` that leaves small segments whole.
uint64_t cut_near(std::span<const Segment> segments, uint64_t wanted_bytes);

}  // namespace braid::multipath
