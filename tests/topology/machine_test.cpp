// Reading sysfs, from a folder that looks like it.
#include "topology/machine.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace braid::topology {
namespace {
namespace fs = std::filesystem;

class MachineTest : public testing::Test {
 protected:
  MachineTest() : root_(fs::temp_directory_path() / ("braid_sysfs_" + std::to_string(getpid()))) {}
  ~MachineTest() override { fs::remove_all(root_); }

  void write(const fs::path& path, const std::string& text) {
    fs::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << text << "\n";
  }

  // A device below `above`, as the kernel lays it out: a real folder and a link by address.
  void device(const std::string& above, const std::string& bus_id, const std::string& speed,
              const std::string& lanes, const std::string& node) {
    const fs::path folder = fs::path("sys/devices") / above / bus_id;
    write(folder / "max_link_speed", speed);
    write(folder / "current_link_width", lanes);
    write(folder / "numa_node", node);
    fs::create_directories(root_ / "sys/bus/pci/devices");
    fs::create_directory_symlink(root_ / folder, root_ / "sys/bus/pci/devices" / bus_id);
  }

  fs::path root_;
};

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
