// Where memory lies and where NICs sit on this server: NUMA nodes as the kernel numbers them, PCIe
// switches by numbers of this process's own. What cannot be found out is -1. Not synchronised.
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
  explicit Places(const topology::Machine& machine) : machine_(machine), knows_(true) {}

  /// Of the page at the address, if it has been touched.
  Place of_host(const void* address) const;
  Place of_gpu(int ordinal);
  /// With the GPU below the same switch, if the process has loaded the driver.
  Place of_nic(const topology::Nic& nic);

 private:
  Place of_device(const std::string& bus_id);

  topology::Machine machine_;
  bool knows_ = false;
  std::map<std::string, int> switches_;
};

}  // namespace braid::transfer
