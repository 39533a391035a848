// Which RDMA devices are near which memory of this host, in the form of Mooncake's topology:
//   {"cpu:0": [["mlx5_0"], ["mlx5_1"]], "cuda:0": [[...], [...]]}
// Each memory has its nearest devices first and all others behind, those of nearer NUMA nodes
// first. Pure, except for `host_matrix`.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "topology/machine.h"
#include "transfer/policy/tiers.h"

namespace braid::transfer {

using NamedPlace = std::pair<std::string, Place>;

std::string write_matrix(const std::vector<NamedPlace>& memories,
                         const std::vector<NamedPlace>& devices,
                         const topology::NumaDistances& distances = {});

/// Of this host: its NUMA nodes, and its GPUs if the process has loaded the driver. `devices`: the
/// only ones that count; empty: all.
std::string host_matrix(const topology::Machine& machine, const std::vector<std::string>& devices);

}  // namespace braid::transfer
