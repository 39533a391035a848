#include "transfer/policy/tiers.h"

#include <algorithm>

namespace braid::transfer {
namespace {

bool are_same_node(const Place& a, const Place& b) {
  return a.numa_node < 0 || b.numa_node < 0 || a.numa_node == b.numa_node;
}

bool share_a_switch(const Place& a, const Place& b) {
  return a.pcie_switch >= 0 && a.pcie_switch == b.pcie_switch;
}

}  // namespace

std::vector<uint8_t> tiers(const Place& memory, std::span<const Place> nics) {
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
      found.push_back(kOtherNode);
  }
  return found;
}

}  // namespace braid::transfer
