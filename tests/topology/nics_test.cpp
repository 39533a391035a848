// Network interfaces: as sysfs shows them, and how near they are to GPUs.
#include <nlohmann/json.hpp>

#include "tests/topology/shipped.h"
#include "tests/topology/sysfs_tree.h"
#include "topology/facts.h"
#include "topology/machine.h"
#include "topology/profile.h"

namespace braid::topology {
namespace {

using Names = std::vector<std::string>;

const fs::path kPci = "sys/devices/pci0000:15";

const Nic* find(const std::vector<Nic>& nics, const std::string& name) {
  for (const Nic& nic : nics)
    if (nic.name == name) return &nic;
  return nullptr;
}

using NicsTest = SysfsTree;

TEST_F(NicsTest, AnRdmaNicBehindASwitch) {
  device("pci0000:15", "0000:15:01.0", "32.0 GT/s PCIe", "16", "1");
  device("pci0000:15/0000:15:01.0", "0000:16:00.0", "32.0 GT/s PCIe", "16", "1");
  device("pci0000:15/0000:15:01.0/0000:16:00.0", "0000:17:00.0", "32.0 GT/s PCIe", "16", "1");
  device("pci0000:15/0000:15:01.0/0000:16:00.0/0000:17:00.0", "0000:18:00.0", "32.0 GT/s PCIe",
         "16", "1");
  const fs::path at = kPci / "0000:15:01.0/0000:16:00.0/0000:17:00.0/0000:18:00.0";
  interface("ens1", at, "up", "400000");
  rdma_device("mlx5_0", at, "ens1", "4: ACTIVE", "400 Gb/sec (4X NDR)");
  const std::vector<Nic> nics = Machine(root_).nics();
  ASSERT_EQ(nics.size(), 1u) << "the RDMA device and the interface are one NIC";
  EXPECT_EQ(nics[0].name, "ens1");
  EXPECT_EQ(nics[0].rdma_device, "mlx5_0");
  EXPECT_EQ(nics[0].pci_bus_id, "0000:18:00.0");
  EXPECT_EQ(nics[0].bridges, (Names{"0000:15:01.0", "0000:16:00.0", "0000:17:00.0"}));
  EXPECT_EQ(nics[0].numa_node, 1);
  EXPECT_EQ(nics[0].link_gbps.value, 50);
  EXPECT_EQ(nics[0].state, NicState::kUp);
}

TEST_F(NicsTest, InfinibandWithoutAnInterfaceStandsForItself) {
  device("pci0000:15", "0000:15:01.0", "32.0 GT/s PCIe", "16", "0");
  rdma_device("mlx5_3", kPci / "0000:15:01.0", "", "1: DOWN", "200 Gb/sec (4X HDR)");
  const std::vector<Nic> nics = Machine(root_).nics();
  ASSERT_EQ(nics.size(), 1u);
  EXPECT_EQ(nics[0].name, "mlx5_3");
  EXPECT_EQ(nics[0].state, NicState::kDown);
  EXPECT_EQ(nics[0].link_gbps.value, 25);
  EXPECT_EQ(nics[0].numa_node, 0);
}

TEST_F(NicsTest, AVirtualMachinesNicHasNoSpeed) {
  device("pci0000:00", "0000:00:03.0", "Unknown", "0", "-1");
  interface("eth0", "sys/devices/pci0000:00/0000:00:03.0/virtio2", "up", "-1");
  const std::vector<Nic> nics = Machine(root_).nics();
  EXPECT_EQ(find(nics, "eth0")->pci_bus_id, "0000:00:03.0");
  EXPECT_EQ(find(nics, "eth0")->numa_node, -1);
  EXPECT_EQ(find(nics, "eth0")->link_gbps.source, "");
}

TEST_F(NicsTest, LoopbackIsVirtualAndUp) {
  interface("lo", "sys/devices/virtual", "unknown", "");
  interface("docker0", "sys/devices/virtual", "down", "");
  const std::vector<Nic> nics = Machine(root_).nics();
  ASSERT_EQ(nics.size(), 2u);
  EXPECT_TRUE(find(nics, "lo")->is_virtual());
  EXPECT_EQ(find(nics, "lo")->state, NicState::kUp);
  EXPECT_EQ(find(nics, "docker0")->state, NicState::kDown);
}

TEST(HostNics, LoopbackOfThisHostHasItsAddress) {
  const std::vector<Nic> nics = host_nics();
  const Nic* loopback = find(nics, "lo");
  ASSERT_NE(loopback, nullptr);
  ASSERT_FALSE(loopback->addresses.empty());
  EXPECT_EQ(loopback->addresses[0], "127.0.0.1");
}

// ---- How near

GpuFacts gpu_behind(Names bridges, int node) {
  GpuFacts gpu;
  gpu.name = "NVIDIA Test";
  gpu.pci_bus_id = bridges.back() + "-gpu";
  gpu.memory_bytes = uint64_t{96} << 30;
  gpu.sm_count = 78;
  gpu.compute_major = 9;
  gpu.numa_node = node;
  if (bridges.size() >= 3) gpu.switch_id = bridges[bridges.size() - 2];
  gpu.bridges = std::move(bridges);
  return gpu;
}

Nic nic_behind(const std::string& name, Names bridges, int node) {
  Nic nic;
  nic.name = name;
  if (!bridges.empty()) nic.pci_bus_id = "0000:aa:00.0";
  nic.bridges = std::move(bridges);
  nic.numa_node = node;
  return nic;
}

/// Two sockets; GPUs 0 and 1 behind one switch, GPU 2 alone, GPU 3 behind a switch below a switch.
MachineFacts two_sockets() {
  MachineFacts facts;
  facts.numa_nodes = 2;
  facts.gpus = {gpu_behind({"r0", "up0", "down0"}, 0), gpu_behind({"r0", "up0", "down1"}, 0),
                gpu_behind({"r1"}, 0), gpu_behind({"r2", "up2", "down2", "up3", "down3"}, 1)};
  facts.joined.assign(4, std::vector<bool>(4, false));
  facts.nics = {nic_behind("beside", {"r0", "up0", "down2"}, 0), nic_behind("alone", {"r5"}, 0),
                nic_behind("above", {"r2", "up2", "down4"}, 1), nic_behind("lo", {}, -1)};
  return facts;
}

TEST(NearNics, SwitchesComeBeforeNodes) {
  const Server server = estimate_server(two_sockets());
  ASSERT_TRUE(validate(server).ok()) << validate(server).message();
  EXPECT_EQ(nics_near(server, 0, Nearness::kSameSwitch), (std::vector<int>{0}));
  EXPECT_EQ(nics_near(server, 0, Nearness::kSameNode), (std::vector<int>{1}));
  EXPECT_EQ(nics_near(server, 1, Nearness::kSameSwitch), (std::vector<int>{0}));
  EXPECT_EQ(nics_near(server, 2, Nearness::kSameSwitch), (std::vector<int>{}));
  EXPECT_EQ(nics_near(server, 2, Nearness::kSameNode), (std::vector<int>{0, 1}));
  EXPECT_EQ(nics_near(server, 3, Nearness::kSameSwitch), (std::vector<int>{2}));
  EXPECT_EQ(nics_near(server, 3, Nearness::kFar), (std::vector<int>{0, 1})) << "lo is near none";
}

// ---- In profiles

using Json = nlohmann::ordered_json;

Result<Server> with_nics(const Json& nics) {
  Json json = Json::parse(shipped_text("h20x8"));
  json["nics"] = nics;
  return parse_profile(json.dump(), "mine.json");
}

TEST(ProfileNics, ComeBackAsTheyWere) {
  const auto read = with_nics(Json::parse(R"([
    {"name": "mlx5_0", "rdma_device": "mlx5_0", "pci_bus_id": "0000:1a:00.0", "numa_node": 0,
     "pcie_switch": "switch1", "link_gbps": {"value": 50, "source": "datasheet: 400 Gbit/s"}},
    {"name": "lo"}])"));
  ASSERT_TRUE(read.ok()) << read.status().message();
  const Server& server = read.value();
  ASSERT_EQ(server.nics.size(), 2u);
  EXPECT_EQ(nearness(server, 2, 0), Nearness::kSameSwitch);
  EXPECT_EQ(nearness(server, 0, 0), Nearness::kSameNode);
  EXPECT_EQ(nearness(server, 4, 0), Nearness::kFar);
  const auto again = parse_profile(write_profile(server), "again.json");
  ASSERT_TRUE(again.ok()) << again.status().message();
  EXPECT_EQ(write_profile(again.value()), write_profile(server));
  EXPECT_EQ(again.value().nics[0].link_gbps.value, 50);
  EXPECT_EQ(again.value().nics[0].pci_bus_id, "0000:1a:00.0");
}

TEST(ProfileNics, WhatIsWrongIsNamed) {
  const auto said = [](const char* nics) {
    return with_nics(Json::parse(nics)).status().message();
  };
  EXPECT_EQ(said(R"([{"name": "a"}, {"name": "a"}])"), "mine.json: two NICs are called a");
  EXPECT_EQ(said(R"([{"name": "a", "pcie_switch": "gpu0"}])"),
            "mine.json: NIC 'a' is behind gpu0, which is no PCIe switch");
  EXPECT_EQ(said(R"([{"name": "a", "numa_node": 2}])"),
            "mine.json: nics[0].numa_node: expected a whole number from 0 to 1, found 2");
  EXPECT_EQ(said(R"([{"nam": "a"}])").find("mine.json: nics[0].nam: unknown key"), 0u);
}

}  // namespace
}  // namespace braid::topology
