// SuperInfer's Largest-VLT-First scheduling, Algorithm 1, to the letter. Section 4.2.3.
// RotaSched is in rota.cpp.
#pragma once

#include <cstdint>
#include <vector>

#include "serving/virtual_lag.h"

namespace braid::serving {

struct LargestLagFirst {
  std::vector<const RequestView*> preempted;    ///< P, in the order of line 13
  std::vector<const RequestView*> prioritized;  ///< R, in the order of line 7
  bool fell_back = false;                       ///< step 1: all fits, R is all that is not running
};

/// `free_blocks` is B_HBM and `transfer_blocks` B_xfer. Two oddities of the algorithm are kept. A
/// request that began to run at this moment has a lag of 0, so line 8 prioritizes it and counts its
/// blocks against the others. And P may give back more than R takes, or less.
LargestLagFirst largest_lag_first(const View& view, int64_t free_blocks, int64_t transfer_blocks,
                                  const LagParameters& parameters);

}  // namespace braid::serving
