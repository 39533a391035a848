// Which RDMA devices are near which memory, in Mooncake's form.
#include "tests/topology/sysfs_tree.h"
#include "transfer/nic_matrix.h"

namespace braid::transfer {
namespace {

class NicMatrix : public topology::SysfsTree {
 protected:
  void rdma(const std::string& name, const std::string& bus_id, const std::string& node) {
    device("pci0000:15", bus_id, "32.0 GT/s PCIe", "16", node);
    rdma_device(name, "sys/devices/pci0000:15/" + bus_id, "", "4: ACTIVE", "400 Gb/sec (4X NDR)");
  }
};

TEST_F(NicMatrix, ANodesOwnDevicesComeFirst) {
  write("sys/devices/system/node/has_cpu", "0-1");
  write("sys/devices/system/node/has_memory", "0-1");
  rdma("mlx5_0", "0000:15:01.0", "0");
  rdma("mlx5_1", "0000:15:02.0", "1");
  rdma("mlx5_2", "0000:15:03.0", "1");
  interface("eth0", "sys/devices/pci0000:00/0000:00:03.0/virtio2", "up", "-1");
  const topology::Machine machine(root_);
  EXPECT_EQ(
      host_matrix(machine, {}),
      R"({"cpu:0":[["mlx5_0"],["mlx5_1","mlx5_2"]],"cpu:1":[["mlx5_1","mlx5_2"],["mlx5_0"]]})");
  EXPECT_EQ(host_matrix(machine, {"mlx5_1"}),
            R"({"cpu:0":[[],["mlx5_1"]],"cpu:1":[["mlx5_1"],[]]})");
}

TEST_F(NicMatrix, OfTheOthersThoseOfTheNearerNodesComeFirst) {
  write("sys/devices/system/node/has_cpu", "0");
  write("sys/devices/system/node/has_memory", "0");
  write("sys/devices/system/node/online", "0-2");
  write("sys/devices/system/node/node0/distance", "10 32 12");
  write("sys/devices/system/node/node1/distance", "32 10 32");
  write("sys/devices/system/node/node2/distance", "12 32 10");
  rdma("mlx5_0", "0000:15:01.0", "1");
  rdma("mlx5_1", "0000:15:02.0", "2");
  EXPECT_EQ(host_matrix(topology::Machine(root_), {}), R"({"cpu:0":[[],["mlx5_1","mlx5_0"]]})");
}

TEST_F(NicMatrix, AGpuHasTheDeviceAtItsSwitch) {
  const std::vector<NamedPlace> devices = {{"mlx5_0", {false, 0, 7, -1}},
                                           {"mlx5_1", {false, 0, 8, -1}}};
  EXPECT_EQ(write_matrix({{"cpu:0", {false, 0, -1, -1}}, {"cuda:0", {true, 0, 8, 0}}}, devices),
            R"({"cpu:0":[["mlx5_0","mlx5_1"],[]],"cuda:0":[["mlx5_1"],["mlx5_0"]]})");
}

TEST_F(NicMatrix, AHostWithoutAnyHasItsMemoryAllTheSame) {
  EXPECT_EQ(host_matrix(topology::Machine(root_), {}), R"({"cpu:0":[[],[]]})");
}

}  // namespace
}  // namespace braid::transfer
