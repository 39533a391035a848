// The operating system's facts about the server, from sysfs: NUMA nodes, the PCI bridges above a
// device, and network interfaces. An absent or unreadable file is an unknown fact, never an error:
// a container or a virtual machine hides many.
#pragma once

#include <string>
#include <vector>

#include "topology/numa_distances.h"
#include "topology/server.h"

namespace braid::topology {

/// A PCIe link; zeros when unknown.
struct PcieSpeed {
  int generation = 0;
  int lanes = 0;
  bool known() const { return generation > 0 && lanes > 0; }
};

/// A PCI device as sysfs shows it.
struct PciPlace {
  bool found = false;
  int numa_node = -1;     ///< as the kernel numbers them; -1: unknown
  PcieSpeed link;         ///< the device's maximum link speed
  std::string switch_id;  ///< bus address of the nearest switch's upstream port; empty: none
  PcieSpeed switch_link;  ///< the link above that switch
  std::vector<std::string> bridges;  ///< all above it, by bus address, the root port first
};

class Machine {
 public:
  /// `root` holds sys/; tests give a folder of their own.
  explicit Machine(std::string root = "/") : root_(std::move(root)) {}

  /// Kernel numbers of the NUMA nodes that have both CPUs and memory; empty when unknown.
  std::vector<int> numa_nodes() const;

  /// Of all nodes that are online, by their kernel numbers. Without nodes: unknown.
  NumaDistances numa_distances() const;

  /// `bus_id` as the driver gives it: "0000:18:00.0".
  PciPlace find(const std::string& bus_id) const;

  /// Kernel numbers of a NUMA node's CPUs; empty when unknown.
  std::vector<int> cpus_of_node(int node) const;

  /// By name: the classes net and infiniband. Addresses are not in sysfs: see host_nics.
  std::vector<Nic> nics() const;

 private:
  std::string read(const std::string& path) const;
  PcieSpeed read_link(const std::string& device) const;
  Nic read_nic(const std::string& interface) const;
  void add_rdma_device(const std::string& device, std::vector<Nic>& nics) const;
  void set_place(const std::string& device_folder, Nic& nic) const;

  std::string root_;
};

/// The network interfaces of this host, with the addresses that they have now.
std::vector<Nic> host_nics();

/// "0-1,4" to 0, 1, 4: the kernel's lists. Unreadable parts are skipped.
std::vector<int> parse_list(const std::string& text);

/// "0000:18:00.0"
bool is_bus_id(const std::string& text);

/// "32.0 GT/s PCIe" to 5; 0 when unknown.
int pcie_generation(const std::string& speed);

}  // namespace braid::topology
