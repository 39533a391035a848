// What the operating system knows of the server: NUMA nodes and the PCI bridges above a device,
// from sysfs. Absent or unreadable files are facts that are not known, never errors: in a container
// or a virtual machine much of this is hidden.
#pragma once

#include <string>
#include <vector>

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
  PcieSpeed link;         ///< the most that the device's link does
  std::string switch_id;  ///< bus address of the nearest switch's upstream port; empty: none
  PcieSpeed switch_link;  ///< the link above that switch
};

class Machine {
 public:
  /// `root` holds sys/; tests give a folder of their own.
  explicit Machine(std::string root = "/") : root_(std::move(root)) {}

  /// Kernel numbers of the NUMA nodes that have both CPUs and memory; empty when unknown.
  std::vector<int> numa_nodes() const;

  /// `bus_id` as the driver gives it: "0000:18:00.0".
  PciPlace find(const std::string& bus_id) const;

 private:
  std::string read(const std::string& path) const;
  PcieSpeed read_link(const std::string& device) const;

  std::string root_;
};

/// "0-1,4" to 0, 1, 4: the kernel's lists. What cannot be read is left out.
std::vector<int> parse_list(const std::string& text);

/// "32.0 GT/s PCIe" to 5; 0 when unknown.
int pcie_generation(const std::string& speed);

}  // namespace braid::topology
