// Which NICs become rails, and where an engine's thread runs.
#include "fabric/library/rail_choice.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <thread>

#include "fabric/library/service.h"
#include "tests/support/set_variable.h"
#include "tests/topology/sysfs_tree.h"

namespace braid::fabric {
namespace {

using braid::test::SetVariable;
using topology::Nic;
using topology::NicState;
using Names = std::vector<std::string>;

Nic nic(const std::string& name, Names addresses, int node = -1, bool is_up = true) {
  Nic made;
  made.name = name;
  made.addresses = std::move(addresses);
  made.numa_node = node;
  made.state = is_up ? NicState::kUp : NicState::kDown;
  return made;
}

const std::vector<Nic>& host() {
  static const std::vector<Nic> nics = {nic("docker0", {"172.17.0.1"}),
                                        nic("eth0", {"10.0.0.1", "fd00::1"}, 0),
                                        nic("eth1", {"10.0.1.1"}, 1),
                                        nic("eth10", {"10.0.2.1"}, 1),
                                        nic("eth2", {}, 1),
                                        nic("ib0", {"10.0.3.1"}, 1, false),
                                        nic("lo", {"127.0.0.1", "::1"})};
  return nics;
}

Names taken(const char* pattern) {
  const auto choice = choose_rails(pattern, host());
  return choice.ok() ? choice.value().nics : Names{choice.status().message()};
}

TEST(RailChoice, WordsAreBeginningsOfNames) {
  EXPECT_EQ(taken("eth0"), (Names{"eth0"}));
  EXPECT_EQ(taken("eth1"), (Names{"eth1", "eth10"}));
  EXPECT_EQ(taken("eth1,eth0"), (Names{"eth1", "eth10", "eth0"})) << "in the order of the words";
  EXPECT_EQ(taken("eth,eth0"), (Names{"eth0", "eth1", "eth10"})) << "each once";
  EXPECT_EQ(taken("lo"), (Names{"lo"})) << "whoever names loopback gets it";
}

TEST(RailChoice, RailsMayBeRdmaDevices) {
  std::vector<Nic> nics = host();
  nics[1].rdma_device = "rdmap0s6";
  nics.push_back(nic("rdmap1s6", {}, 1));
  nics.back().rdma_device = "rdmap1s6";
  nics.back().state = NicState::kUnknown;
  const auto choice = choose_rails("^docker0", by_rdma_device(nics)).value();
  EXPECT_EQ(choice.addresses, (Names{"rdmap0s6", "rdmap1s6"}));
  EXPECT_EQ(choice.nics, (Names{"eth0", "rdmap1s6"}));
}

TEST(RailChoice, AnEqualsSignMeansWholeNames) { EXPECT_EQ(taken("=eth1"), (Names{"eth1"})); }

TEST(RailChoice, ACaretTakesAllOthersButLoopback) {
  EXPECT_EQ(taken("^docker0"), (Names{"eth0", "eth1", "eth10"}));
  EXPECT_EQ(taken("^docker,eth1"), (Names{"eth0"}));
  EXPECT_EQ(taken("^=docker0,eth1"), (Names{"eth0", "eth10"}));
  EXPECT_EQ(taken("^"), (Names{"docker0", "eth0", "eth1", "eth10"}));
}

TEST(RailChoice, EachListensAtItsFirstAddress) {
  EXPECT_EQ(choose_rails("eth0,eth1", host()).value().addresses,
            (Names{"10.0.0.1", "10.0.1.1", "10.0.2.1"}));
}

TEST(RailChoice, WhatIsNotThereIsNamedWithWhatIs) {
  const std::string here =
      ". Here are docker0 (172.17.0.1), eth0 (10.0.0.1), eth1 (10.0.1.1), eth10 (10.0.2.1), eth2 "
      "(no address), ib0 (down), lo (127.0.0.1)";
  EXPECT_EQ(taken("eth0,eth7"), (Names{"no NIC is called 'eth7', or begins so" + here}));
  EXPECT_EQ(taken("=eth"), (Names{"no NIC is called 'eth'" + here}));
  EXPECT_EQ(taken("ib0"), (Names{"NIC 'ib0' is down, or has no address" + here}));
  EXPECT_EQ(taken("^eth,docker"),
            (Names{"'^eth,docker' leaves no NIC that is up and has an address" + here}));
  EXPECT_EQ(taken(","), (Names{"',' names no NIC. Write eth0,eth1 or ^docker0"}));
}

TEST(RailChoice, MoreNicsThanRailsAreRefused) {
  std::vector<Nic> many;
  for (int i = 0; i < 17; ++i) many.push_back(nic("eth" + std::to_string(i), {"10.0.0.1"}));
  EXPECT_EQ(choose_rails("eth", many)
                .status()
                .message()
                .find("'eth' takes 17 NICs, and an engine has at most 16 rails"),
            0u);
}

TEST(RailChoice, TheNodeIsThatOfMostRails) {
  EXPECT_EQ(choose_rails("eth", host()).value().numa_node, 1);
  EXPECT_EQ(choose_rails("=eth0,eth1", host()).value().numa_node, 0) << "of equals the lowest";
  EXPECT_EQ(choose_rails("lo", host()).value().numa_node, -1);
  EXPECT_EQ(rails_at({"fd00::1", "192.0.2.77"}, host()).numa_node, 0);
  EXPECT_EQ(rails_at({"fd00::1", "192.0.2.77"}, host()).nics, (Names{"eth0", ""}));
}

// ---- Engines

class RailServiceTest : public topology::SysfsTree {
 protected:
  /// A host of two nodes; node 1 has one CPU, and loopback is near it.
  void two_nodes(int cpu) {
    write("sys/devices/system/node/has_cpu", "0-1");
    write("sys/devices/system/node/has_memory", "0-1");
    write("sys/devices/system/node/node1/cpulist", std::to_string(cpu));
  }
  Result<std::unique_ptr<Service>> open(ServiceOptions options) {
    options.provider = "tcp;ofi_rxm";
    return Service::open(options, topology::Machine(root_.string()),
                         {nic("lo", {"127.0.0.1"}, 1), nic("lo1", {"127.0.0.2"}, 1)});
  }
  static size_t rails_of(const Result<std::unique_ptr<Service>>& service) {
    return service.value()->with([](Engine& engine) { return engine.address().rails.size(); });
  }
};

TEST_F(RailServiceTest, TheVariableChoosesUnlessTheProgramDoes) {
  {
    const SetVariable nics(kNicsVariable, "=lo,lo1");
    EXPECT_EQ(rails_of(open({})), 2u);
    EXPECT_EQ(rails_of(open({.addresses = {"127.0.0.1"}})), 1u);
    EXPECT_EQ(rails_of(open({.nics = "=lo1"})), 1u);
    EXPECT_EQ(open({.addresses = {"127.0.0.1"}, .nics = "lo"}).status().message(),
              "an engine takes addresses or NICs, not both");
  }
  {
    const SetVariable nics(kNicsVariable, "eth7");
    EXPECT_EQ(open({}).status().message(),
              "BRAID_FABRIC_NICS: no NIC is called 'eth7', or begins so. Here are lo (127.0.0.1), "
              "lo1 (127.0.0.2)");
  }
  EXPECT_EQ(rails_of(open({})), 1u) << "loopback unless told";
}

/// The variable is for all engines of the host; `local` has no use for a network interface.
TEST_F(RailServiceTest, LocalNeedsNeitherANicNorASecret) {
  const auto open_local = [&](ServiceOptions options) {
    options.provider = "local";
    return Service::open(options, topology::Machine(root_.string()), host());
  };
  const SetVariable nics(kNicsVariable, "eth0,eth1");
  EXPECT_EQ(rails_of(open_local({})), 1u);
  EXPECT_EQ(rails_of(open_local({.addresses = {"10.0.0.1"}})), 1u) << "nobody reaches it there";
}

/// The CPUs of each thread of this process but the calling one, as the kernel writes them.
std::set<std::string> cpus_of_other_threads() {
  std::set<std::string> lists;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    if (task.path().filename() == std::to_string(gettid())) continue;
    std::ifstream status(task.path() / "status");
    const std::string key = "Cpus_allowed_list:\t";
    for (std::string line; std::getline(status, line);)
      if (line.starts_with(key)) lists.insert(line.substr(key.size()));
  }
  return lists;
}

TEST_F(RailServiceTest, TheThreadStaysOnTheNodeOfTheRails) {
  cpu_set_t before;
  ASSERT_EQ(sched_getaffinity(0, sizeof before, &before), 0);
  int last = 0;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu)
    if (CPU_ISSET(cpu, &before)) last = cpu;
  if (CPU_COUNT(&before) < 2) GTEST_SKIP() << "this process may use one CPU only";
  two_nodes(last);
  {
    const auto service = open({});
    EXPECT_EQ(cpus_of_other_threads(), std::set<std::string>{std::to_string(last)});
    cpu_set_t after;
    sched_getaffinity(0, sizeof after, &after);
    EXPECT_TRUE(CPU_EQUAL(&before, &after)) << "the program's own thread is where it was";
  }
  const auto unpinned = open({.is_pinned = false});
  EXPECT_EQ(cpus_of_other_threads().count(std::to_string(last)), 0u);
}

TEST_F(RailServiceTest, OneNodeOrNoCpuOfItPinsNothing) {
  for (const char* cpus : {"1000", ""}) {
    two_nodes(0);
    write("sys/devices/system/node/node1/cpulist", cpus);
    EXPECT_TRUE(open({}).ok());
  }
  write("sys/devices/system/node/has_cpu", "0");
  write("sys/devices/system/node/node1/cpulist", "0");
  const auto service = open({});
  EXPECT_EQ(cpus_of_other_threads().count("0"), 0u);
}

}  // namespace
}  // namespace braid::fabric
