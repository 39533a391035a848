// How near each NIC is to memory, at either end: a pure function of the server and the location.
// Source: TENT, 3.2.1. Tier 0 here is its tier 1.
#pragma once

#include <compare>
#include <cstdint>
#include <span>
#include <vector>

namespace braid::transfer {

/// Where memory lies or a NIC sits. The server gives the numbers; -1: unknown, or none.
struct Place {
  bool is_gpu = false;  ///< memory of a GPU; of a NIC: false
  int numa_node = -1;
  int pcie_switch = -1;
  int gpu = -1;  ///< the GPU that has the memory, or the GPU beside the NIC
  auto operator<=>(const Place&) const = default;
};

inline constexpr uint8_t kNearest = 0;    ///< GPU: its PCIe switch, or the nearest; host: its node
inline constexpr uint8_t kSameNode = 1;   ///< the GPU's NUMA node, another switch
inline constexpr uint8_t kOtherNode = 2;  ///< across sockets

/// The tier of each NIC for this memory. An unknown place counts as the same node.
std::vector<uint8_t> tiers(const Place& memory, std::span<const Place> nics);

}  // namespace braid::transfer
