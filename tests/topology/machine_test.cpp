// Reading sysfs, from a folder that looks like it.
#include "topology/machine.h"

#include "tests/topology/sysfs_tree.h"

namespace braid::topology {
namespace {

using MachineTest = SysfsTree;

TEST_F(MachineTest, FindsAGpuBehindASwitch) {
  device("pci0000:15", "0000:15:01.0", "32.0 GT/s PCIe", "16", "1");
  device("pci0000:15/0000:15:01.0", "0000:16:00.0", "16.0 GT/s PCIe", "8", "1");
  device("pci0000:15/0000:15:01.0/0000:16:00.0", "0000:17:00.0", "32.0 GT/s PCIe", "16", "1");
  device("pci0000:15/0000:15:01.0/0000:16:00.0/0000:17:00.0", "0000:18:00.0", "32.0 GT/s PCIe",
         "16", "1");
  const PciPlace place = Machine(root_).find("0000:18:00.0");
  EXPECT_TRUE(place.found);
  EXPECT_EQ(place.numa_node, 1);
  EXPECT_EQ(place.link.generation, 5);
  EXPECT_EQ(place.link.lanes, 16);
  EXPECT_EQ(place.switch_id, "0000:16:00.0");
  EXPECT_EQ(place.bridges,
            (std::vector<std::string>{"0000:15:01.0", "0000:16:00.0", "0000:17:00.0"}));
  EXPECT_EQ(place.switch_link.generation, 4);
  EXPECT_EQ(place.switch_link.lanes, 8);
}

TEST_F(MachineTest, AGpuAtARootPortHasNoSwitch) {
  device("pci0000:15", "0000:15:01.0", "32.0 GT/s PCIe", "16", "0");
  device("pci0000:15/0000:15:01.0", "0000:16:00.0", "Unknown", "0", "-1");
  const PciPlace place = Machine(root_).find("0000:16:00.0");
  EXPECT_TRUE(place.found);
  EXPECT_EQ(place.switch_id, "");
  EXPECT_EQ(place.numa_node, -1);
  EXPECT_FALSE(place.link.known());
}

TEST_F(MachineTest, WhatIsNotThereIsNotKnown) {
  EXPECT_FALSE(Machine(root_).find("0000:18:00.0").found);
  EXPECT_TRUE(Machine(root_).numa_nodes().empty());
}

TEST_F(MachineTest, NodesHaveCpusAndMemory) {
  write("sys/devices/system/node/has_cpu", "0-1");
  write("sys/devices/system/node/has_memory", "0-1,2,4-6");  // the rest is memory of GPUs or CXL
  EXPECT_EQ(Machine(root_).numa_nodes(), (std::vector<int>{0, 1}));
}

TEST_F(MachineTest, NodesHaveDistances) {
  write("sys/devices/system/node/online", "0,2-3");
  write("sys/devices/system/node/node0/distance", "10 12 32");
  write("sys/devices/system/node/node2/distance", "12 10 32");
  EXPECT_TRUE(Machine(root_).numa_distances().nodes.empty()) << "node 3 tells none";
  write("sys/devices/system/node/node3/distance", "32 32 10");
  const NumaDistances distances = Machine(root_).numa_distances();
  EXPECT_EQ(distances.between(0, 2), 12);
  EXPECT_EQ(distances.between(3, 0), 32);
  EXPECT_EQ(distances.between(0, 1), std::nullopt) << "it is not online";
  write("sys/devices/system/node/node3/distance", "10 32 10");
  EXPECT_TRUE(Machine(root_).numa_distances().nodes.empty()) << "no node is as near as itself";
}

TEST_F(MachineTest, ANodeHasCpus) {
  write("sys/devices/system/node/node1/cpulist", "2-3,6");
  EXPECT_EQ(Machine(root_).cpus_of_node(1), (std::vector<int>{2, 3, 6}));
  EXPECT_TRUE(Machine(root_).cpus_of_node(0).empty());
}

TEST(ParseList, ReadsRangesAndSkipsTheRest) {
  EXPECT_EQ(parse_list("0-2,5"), (std::vector<int>{0, 1, 2, 5}));
  EXPECT_TRUE(parse_list("").empty());
  EXPECT_EQ(parse_list("x,3,-"), (std::vector<int>{3}));
  EXPECT_TRUE(parse_list("0-99999999").empty());
}

TEST(PcieGeneration, FollowsTheSpeed) {
  EXPECT_EQ(pcie_generation("2.5 GT/s PCIe"), 1);
  EXPECT_EQ(pcie_generation("16.0 GT/s PCIe"), 4);
  EXPECT_EQ(pcie_generation("64.0 GT/s PCIe"), 6);
  EXPECT_EQ(pcie_generation("Unknown"), 0);
  EXPECT_EQ(pcie_generation(""), 0);
}

}  // namespace
}  // namespace braid::topology
