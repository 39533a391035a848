// A cluster of equal hosts as the simulator sees it: NICs, PCIe, sockets, memories, and the costs
// of operations apart from their bytes. It is read from a JSON file in which every figure has its
// source.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "topology/server.h"
#include "transfer/policy/tiers.h"

namespace braid::transfer::sim {

struct Cluster {
  std::string name;
  std::string description;
  int hosts = 2;
  int numa_nodes = 1;
  topology::Figure gpus;           ///< of a host, evenly over its NUMA nodes
  topology::Figure nics;           ///< likewise; the n-th sits beside the n-th GPU
  topology::Figure nic_gbps;       ///< payload, each way
  topology::Figure gpu_pcie_gbps;  ///< each way
  topology::Figure nic_pcie_gbps;
  topology::Figure memory_gbps;  ///< of a NUMA node, reads and writes together
  topology::Figure socket_gbps;  ///< between two NUMA nodes, each way
  topology::Figure latency_us;   ///< of a write of no bytes, from posting to completion
  topology::Figure socket_latency_us;
  topology::Figure latency_jitter;  ///< the largest addition, as a part of the latency
  topology::Figure post_us;
  topology::Figure submit_us;
  topology::Figure workers;
  topology::Figure fence_us;

  int nic_count() const { return static_cast<int>(nics.value); }
  int gpu_count() const { return static_cast<int>(gpus.value); }
  Place nic_place(int nic) const;
  Place gpu_place(int gpu) const;
  Place host_place(int numa_node) const { return {false, numa_node, -1}; }
};

/// The figures by their names in the file, in its order.
struct ClusterRow {
  struct Range {
    double least, most;
    bool is_whole;
  };
  const char* name;
  topology::Figure Cluster::*figure;
  Range range;
};
const std::vector<ClusterRow>& cluster_rows();

Result<Cluster> load_cluster(const std::string& path);

}  // namespace braid::transfer::sim
