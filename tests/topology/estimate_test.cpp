// Servers that follow from facts, for machines of several kinds.
#include <gtest/gtest.h>

#include <algorithm>

#include "topology/facts.h"
#include "topology/profile.h"

namespace braid::topology {
namespace {

// `count` GPUs, PCIe 5.0 x16 by NVML, all joined.
MachineFacts facts_of(size_t count) {
  MachineFacts facts;
  for (size_t i = 0; i < count; ++i) {
    GpuFacts gpu;
    gpu.name = "NVIDIA H200";
    gpu.pci_bus_id = "0000:1" + std::to_string(i) + ":00.0";
    gpu.memory_bytes = 150121545728;
    gpu.sm_count = 132;
    gpu.compute_major = 9;
    gpu.pcie = {5, 16};
    gpu.pcie_from = "NVML";
    gpu.nvlink = {18, 4, true};
    facts.gpus.push_back(gpu);
  }
  facts.joined.assign(count, std::vector<bool>(count, true));
  for (size_t i = 0; i < count; ++i) facts.joined[i][i] = false;
  facts.joined_from = "NVML";
  facts.description = "a test";
  return facts;
}

std::vector<Link> links_of(const Server& server, LinkKind kind) {
  std::vector<Link> links;
  std::copy_if(server.links.begin(), server.links.end(), std::back_inserter(links),
               [kind](const Link& link) { return link.kind == kind; });
  return links;
}

Server checked(const MachineFacts& facts) {
  Server server = estimate_server(facts);
  EXPECT_TRUE(validate(server).ok()) << validate(server).message();
  for (const Link& link : server.links) {
    EXPECT_FALSE(link.forward_gbps.source.empty());
    EXPECT_FALSE(link.backward_gbps.source.empty());
  }
  return server;
}

TEST(Estimate, DistancesOfNumaNodesAreThoseOfSysfs) {
  MachineFacts facts = facts_of(2);
  facts.numa_nodes = 2;
  EXPECT_TRUE(checked(facts).numa_distances.value.nodes.empty()) << "nobody knows them";
  facts.numa_distances = {{0, 1}, {{10, 21}, {21, 10}}};
  const Server server = checked(facts);
  EXPECT_EQ(server.numa_distances.value.between(0, 1), 21);
  EXPECT_EQ(server.numa_distances.source, "sysfs");
}

TEST(Estimate, CapacitiesComeFromGenerationsAndSaySo) {
  const Server server = checked(facts_of(4));
  const Link pcie = links_of(server, LinkKind::kPcie).front();
  EXPECT_EQ(pcie.forward_gbps.value, 55.4);
  EXPECT_EQ(pcie.forward_gbps.source,
            "estimate: PCIe 5.0 x16 by NVML: 63.0 GB/s raw, 0.88 of it payload");
  const std::vector<Link> nvlinks = links_of(server, LinkKind::kNvLink);
  ASSERT_EQ(nvlinks.size(), 4u);
  EXPECT_EQ(nvlinks[0].forward_gbps.value, 396);
  EXPECT_EQ(nvlinks[0].forward_gbps.source,
            "estimate: 18 NVLinks of version 4 by NVML: 450.0 GB/s nominal, 0.88 of it payload; "
            "peers by NVML");
  EXPECT_EQ(paths_to(server, 2, 0).size(), 4u);
  EXPECT_EQ(server.gpus[3].memory_bytes.value, 150121545728u);
}

TEST(Estimate, WhatNobodySaysIsAssumedAndSaysSo) {
  MachineFacts facts = facts_of(4);
  facts.joined_from = "the CUDA driver";
  for (GpuFacts& gpu : facts.gpus) {
    gpu.pcie = {};
    gpu.nvlink = {};
  }
  const Server server = checked(facts);
  EXPECT_EQ(links_of(server, LinkKind::kPcie)[0].forward_gbps.source.find("assumed: PCIe 4.0"), 0u);
  EXPECT_EQ(links_of(server, LinkKind::kNvLink)[0].forward_gbps.source.find("assumed for the"), 0u);
  EXPECT_TRUE(server.has_nvlink(0, 3));
}

TEST(Estimate, WithoutNvlinkThereAreNoRelays) {
  MachineFacts facts = facts_of(2);
  facts.joined.assign(2, {false, false});
  for (GpuFacts& gpu : facts.gpus) gpu.nvlink = {};
  const Server server = checked(facts);
  EXPECT_TRUE(links_of(server, LinkKind::kNvLink).empty());
  EXPECT_EQ(paths_to(server, 0, 0).size(), 1u);
}

TEST(Estimate, DirectNvlinksAreSharedAmongThePeers) {
  MachineFacts facts = facts_of(4);
  for (GpuFacts& gpu : facts.gpus) gpu.nvlink = {12, 3, false};
  const Server server = checked(facts);
  const std::vector<Link> nvlinks = links_of(server, LinkKind::kNvLink);
  ASSERT_EQ(nvlinks.size(), 6u);  // each pair
  EXPECT_EQ(nvlinks[0].forward_gbps.value, 88);
  EXPECT_NE(nvlinks[0].forward_gbps.source.find("for 3 peers"), std::string::npos);
}

TEST(Estimate, SocketsAndSwitchesAreOnTheWay) {
  MachineFacts facts = facts_of(4);
  facts.numa_nodes = 2;
  for (size_t i = 0; i < 4; ++i) {
    facts.gpus[i].numa_node = i < 2 ? 0 : 1;
    facts.gpus[i].switch_id = i < 2 ? "0000:16:00.0" : "0000:86:00.0";
    facts.gpus[i].switch_pcie = {4, 16};
  }
  const Server server = checked(facts);
  EXPECT_EQ(links_of(server, LinkKind::kSocket).size(), 1u);
  EXPECT_EQ(links_of(server, LinkKind::kPcie).size(), 6u);
  const Path direct = paths_to(server, 0, 0)[0];
  EXPECT_EQ(direct.hops.size(), 3u);
  EXPECT_EQ(direct.gbps, 27.7);  // the switch's uplink is PCIe 4.0
  EXPECT_TRUE(paths_to(server, 0, 0)[2].crosses_socket);
}

TEST(Estimate, OnceItHasCostsItIsAProfile) {
  Server server = checked(facts_of(4));
  for (const CostRow& row : cost_rows()) server.costs.*row.figure = {1, "a test's"};
  const auto again = parse_profile(write_profile(server), "again.json");
  ASSERT_TRUE(again.ok()) << again.status().message();
  EXPECT_EQ(write_profile(again.value()), write_profile(server));
  EXPECT_EQ(again.value().gpus[0].memory_bytes.value, server.gpus[0].memory_bytes.value);
}

}  // namespace
}  // namespace braid::topology
