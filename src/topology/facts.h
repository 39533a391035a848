// What discovery found out about a machine, and the server that follows from it. The conclusion is
// pure, so that machines which nobody here has can be tested.
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
  std::string pcie_from;  ///< who said so: "NVML", "sysfs"; empty: nobody
  std::string switch_id;  ///< the PCIe switch above; empty: none is known
  PcieSpeed switch_pcie;
  std::vector<std::string> bridges;  ///< above it, the root port first; empty: unknown
  NvlinkFacts nvlink;                ///< no links: NVML did not say
};

struct MachineFacts {
  std::vector<GpuFacts> gpus;  ///< by CUDA ordinal
  std::vector<Nic> nics;       ///< their NUMA nodes as indices, from 0
  int numa_nodes = 1;
  /// joined[a][b]: the two reach each other over NVLink, as `joined_from` says.
  std::vector<std::vector<bool>> joined;
  std::string joined_from;
  std::string description;
};

/// Capacities are estimates from link generations and widths; where nothing is known, assumptions.
/// Each says so in its source. Costs are left out: they can only be measured.
Server estimate_server(const MachineFacts& facts);

}  // namespace braid::topology
