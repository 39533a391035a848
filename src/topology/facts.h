// The facts that discovery has found about a machine, and the server derived from them. The
// derivation is pure, so that tests can cover machines that are not at hand.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "topology/machine.h"
#include "topology/nvml.h"
#include "topology/server.h"

namespace braid::topology {

struct GpuFacts {
  std::string name;
  std::string pci_bus_id;
  uint64_t memory_bytes = 0;
  int sm_count = 0;
  int compute_major = 0;
  int compute_minor = 0;
  int numa_node = 0;  ///< index, from 0
  PcieSpeed pcie;
  std::string pcie_from;  ///< the source: "NVML", "sysfs"; empty: unknown
  std::string switch_id;  ///< the PCIe switch above; empty: none is known
  PcieSpeed switch_pcie;
  std::vector<std::string> bridges;  ///< above it, the root port first; empty: unknown
  NvlinkFacts nvlink;                ///< no links: NVML did not answer
};

struct MachineFacts {
  std::vector<GpuFacts> gpus;  ///< by CUDA ordinal
  std::vector<Nic> nics;       ///< their NUMA nodes as indices, from 0
  int numa_nodes = 1;
  NumaDistances numa_distances;  ///< of these indices; without nodes: unknown
  /// joined[a][b]: the two reach each other over NVLink, as `joined_from` says.
  std::vector<std::vector<bool>> joined;
  std::string joined_from;
  std::string description;
};

/// Estimates capacities from link generations and widths, or assumes them if nothing is known. The
/// source of each says which. Costs are left out: they can only be measured.
Server estimate_server(const MachineFacts& facts);

}  // namespace braid::topology
