// GPUs and their links to host memory, for the simulator. Every number is an input, and names its
// source.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace braid::serving {

struct Gpu {
  std::string name;
  double hbm_bytes;
  std::string source;
};

/// The link that carries KV caches between one GPU and its host. Rates are 10^9 bytes a second.
struct Link {
  std::string name;
  double load_gbps;        ///< host to GPU alone
  double save_gbps;        ///< GPU to host alone
  double both_gbps;        ///< sum of both ways at once; unused with `one_way_at_a_time`
  bool one_way_at_a_time;  ///< loads wait for saves
  bool eager;              ///< full blocks are saved as soon as they are written
  double start_us;         ///< time to start a batch of copies
  std::string source;
};

/// The rates of the host's memory, shared by all its GPUs.
struct HostMemory {
  double load_gbps;
  double save_gbps;
  double both_gbps;
  std::string source;
};

Result<Gpu> find_gpu(std::string_view name);
/// A link by its name, or from "LOAD,SAVE,BOTH" in GB/s.
Result<Link> find_link(std::string_view text);
std::string gpu_names();
std::string link_names();
HostMemory pcie_host();

}  // namespace braid::serving
