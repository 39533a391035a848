// Where memory lies and where NICs sit on this server: NUMA nodes as the kernel numbers them, PCIe
// switches as this process numbers them. Unknown values are -1. Not synchronised.
#pragma once

#include <map>
#include <string>

#include "topology/machine.h"
#include "transfer/policy/tiers.h"

namespace braid::transfer {

class Places {
 public:
  /// Knows nothing: all places are equal.
  Places() = default;
  explicit Places(const topology::Machine& machine)
      : machine_(machine), knows_(true), distances_(machine.numa_distances()) {}

  const topology::NumaDistances& distances() const { return distances_; }

  /// The place of the page at the address, if the page has been touched.
  Place of_host(const void* address) const;
  Place of_gpu(int ordinal);
  /// The place of a NIC, with the GPU below the same switch if the process has loaded the driver.
  Place of_nic(const topology::Nic& nic);

 private:
  Place of_device(const std::string& bus_id);

  topology::Machine machine_;
  bool knows_ = false;
  topology::NumaDistances distances_;
  std::map<std::string, int> switches_;
};

}  // namespace braid::transfer
