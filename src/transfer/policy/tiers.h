// How near each NIC is to memory, at either end: a pure function of the server and the location.
// Source: TENT, 3.2.1. Tier 0 here is its tier 1.
#pragma once

#include <compare>
#include <cstdint>
#include <span>
#include <vector>

#include "topology/numa_distances.h"

namespace braid::transfer {

/// Where memory lies or a NIC sits. The server gives the numbers; -1: unknown, or none.
struct Place {
  bool is_gpu = false;  ///< memory of a GPU; of a NIC: false
  int numa_node = -1;
  int pcie_switch = -1;
  int gpu = -1;  ///< the GPU that has the memory, or the GPU beside the NIC
  auto operator<=>(const Place&) const = default;
};

inline constexpr uint8_t kNearest = 0;   ///< GPU: its PCIe switch, or the nearest; host: its node
inline constexpr uint8_t kSameNode = 1;  ///< the GPU's NUMA node, another switch
/// Another node. The nearest of the others have this tier, the next farther ones the next tier, and
/// so on. Where distances are unknown, as between two nodes, all others have this one.
inline constexpr uint8_t kOtherNode = 2;

/// The tier of each NIC for this memory. An unknown place counts as the same node. `distances`: of
/// their host.
std::vector<uint8_t> tiers(const Place& memory, std::span<const Place> nics,
                           const topology::NumaDistances& distances = {});

/// By how many steps a way of this tier is farther than the nearest one that can be used. All tiers
/// up to kOtherNode are one step, since what is farther within a server of two nodes costs alike;
/// each farther node is one more.
constexpr int steps_beyond(uint8_t tier, uint8_t nearest) {
  if (tier <= nearest) return 0;
  const int first = nearest < kOtherNode ? kOtherNode : nearest + 1;
  return tier <= first ? 1 : 1 + tier - first;
}

}  // namespace braid::transfer
