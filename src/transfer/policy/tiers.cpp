#include "transfer/policy/tiers.h"

#include <algorithm>
#include <iterator>
#include <set>

namespace braid::transfer {
namespace {

bool are_same_node(const Place& a, const Place& b) {
  return a.numa_node < 0 || b.numa_node < 0 || a.numa_node == b.numa_node;
}

bool share_a_switch(const Place& a, const Place& b) {
  return a.pcie_switch >= 0 && a.pcie_switch == b.pcie_switch;
}

/// Of a node: the distances of all others, each once.
std::set<int> distances_from(int node, const topology::NumaDistances& distances) {
  std::set<int> found;
  for (const int other : distances.nodes)
    if (const auto distance = distances.between(node, other); distance && other != node)
      found.insert(*distance);
  return found;
}

/// `classes`: what `distances_from` gives for `from`. A node that they do not have is the farthest.
uint8_t tier_of_node(int from, int to, const topology::NumaDistances& distances,
                     const std::set<int>& classes) {
  const auto distance = distances.between(from, to);
  const auto end = distance ? classes.find(*distance) : classes.end();
  return static_cast<uint8_t>(kOtherNode + std::distance(classes.begin(), end));
}

}  // namespace

std::vector<uint8_t> tiers(const Place& memory, std::span<const Place> nics,
                           const topology::NumaDistances& distances) {
  const std::set<int> classes = distances_from(memory.numa_node, distances);
  // If a GPU's switch has no NIC, the NICs of its node are the nearest.
  const bool has_switch =
      memory.is_gpu && std::any_of(nics.begin(), nics.end(),
                                   [&](const Place& nic) { return share_a_switch(memory, nic); });
  std::vector<uint8_t> found;
  for (const Place& nic : nics) {
    if (has_switch && share_a_switch(memory, nic))
      found.push_back(kNearest);
    else if (are_same_node(memory, nic))
      found.push_back(has_switch ? kSameNode : kNearest);
    else
      found.push_back(tier_of_node(memory.numa_node, nic.numa_node, distances, classes));
  }
  return found;
}

}  // namespace braid::transfer
