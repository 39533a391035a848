// How other engines choose a NIC for a slice, for comparison: the same batches, rails and scheduler
// with another policy object. All of them bind a slice when it is submitted.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "fabric/sim/random.h"
#include "transfer/scheduler.h"

namespace braid::transfer::sim {

enum class Method : uint8_t {
  kBraid,
  kMooncake,    ///< 64 KB slices, a random NIC of the NUMA node at either end
  kRoundRobin,  ///< in the first tier
  kHash,        ///< by the slice's address, in the first tier
  kFixed,       ///< a rail for each thread, in the first tier
  kProduct,     ///< TENT's published rule: load x latency x affinity {1, 5, 10}
};
const std::vector<Method>& all_methods();
const char* method_name(Method method);

/// Whether a method takes any pair of NICs of the nearest tiers, or only those that are paired; and
/// whether it leaves the first tier.
bool takes_any_pair(Method method);
bool leaves_first_tier(Method method);

SchedulerOptions options_of(Method method, uint64_t seed);
/// `rail_gbps`: the assumed rate of every NIC.
std::unique_ptr<SprayPolicy> policy_of(Method method, double rail_gbps, uint64_t seed);

}  // namespace braid::transfer::sim
