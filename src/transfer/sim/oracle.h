// The bound that no scheduler can beat: the max-min optimum of threads that use all NICs at once,
// without cutting bytes into pieces.
#pragma once

#include <vector>

#include "transfer/sim/network.h"

namespace braid::transfer::sim {

struct Demand {
  Memory ours, theirs;
  Direction direction = Direction::kWrite;
};

/// GB/s of each demand while all of them are active, at the NICs' current speeds.
std::vector<double> optimum_gbps(const Network& network, const std::vector<Demand>& demands);

/// How long a batch takes at this rate, with one latency and one submission.
double optimum_us(const Cluster& cluster, double size_bytes, double gbps);

}  // namespace braid::transfer::sim
