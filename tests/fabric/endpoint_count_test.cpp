// How many endpoints an address has.
#include "fabric/library/endpoint_count.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/resource.h>

#include "fabric/ofi/shm_room.h"
#include "support/set_variable.h"

namespace braid::fabric {
namespace {

constexpr size_t kDescriptors = 1024;
constexpr double kGbps10 = 1.25, kGbps50 = 6.25, kGbps400 = 50;  // by their bits

TEST(EndpointCount, AnAddressGetsAsManyAsItsNicCanUse) {
  EXPECT_EQ(usual_endpoints(kGbps10, {64, kDescriptors, 1}), 1u);
  EXPECT_EQ(usual_endpoints(kGbps50, {64, kDescriptors, 1}), 3u);
  EXPECT_EQ(usual_endpoints(kGbps400, {64, kDescriptors, 1}), 4u);
  EXPECT_EQ(usual_endpoints(std::nullopt, {64, kDescriptors, 1}), 4u);  // loopback
}

TEST(EndpointCount, TheProgramKeepsCpus) {
  EXPECT_EQ(usual_endpoints(kGbps400, {8, kDescriptors, 1}), 2u);
  EXPECT_EQ(usual_endpoints(kGbps400, {2, kDescriptors, 1}), 1u);
  EXPECT_EQ(usual_endpoints(kGbps400, {192, kDescriptors, 8}), 2u);
  EXPECT_EQ(usual_endpoints(kGbps400, {192, kDescriptors, 32}), 1u);
  EXPECT_EQ(usual_endpoints(kGbps400, {0, 0, 0}), 1u) << "nothing is known";
}

TEST(EndpointCount, OnlyTheCpusThatTheThreadMayUseCount) {
  cpu_set_t before, one;
  ASSERT_EQ(sched_getaffinity(0, sizeof before, &before), 0);
  EXPECT_EQ(endpoint_room(1).cpus, static_cast<size_t>(CPU_COUNT(&before)));
  CPU_ZERO(&one);
  for (int cpu = 0; cpu < CPU_SETSIZE && CPU_COUNT(&one) == 0; ++cpu)
    if (CPU_ISSET(cpu, &before)) CPU_SET(cpu, &one);
  ASSERT_EQ(sched_setaffinity(0, sizeof one, &one), 0);
  EXPECT_EQ(endpoint_room(1).cpus, 1u);
  sched_setaffinity(0, sizeof before, &before);
}

TEST(EndpointCount, TheLimitOfDescriptorsIsTheOneThatIsInForce) {
  rlimit limit{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
  const rlimit lower{limit.rlim_cur / 2, limit.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &lower), 0);
  EXPECT_EQ(endpoint_room(1).descriptors, lower.rlim_cur);
  setrlimit(RLIMIT_NOFILE, &limit);
}

TEST(EndpointCount, TheProgramKeepsDescriptorsAndMemory) {
  EXPECT_EQ(doors_at_all_endpoints({16, 1024, 1}, 4), 5u);
  EXPECT_EQ(doors_at_all_endpoints({16, 1024, 5}, 4), 1u);
  EXPECT_EQ(doors_at_all_endpoints({16, 1 << 20, 1}, 2), 16u);
  EXPECT_EQ(doors_at_all_endpoints({16, 1024, 1}, 1), 0u) << "there is one endpoint";
}

TEST(EndpointCount, WhereNoPeerMayHaveSeveralThereIsOne) {
  const std::vector<topology::Nic> none;
  EXPECT_EQ((EndpointCount{std::nullopt, {16, 1024, 1}, none}.at("127.0.0.1")), 4u);
  EXPECT_EQ((EndpointCount{std::nullopt, {16, 128, 1}, none}.at("127.0.0.1")), 1u);
  EXPECT_EQ((EndpointCount{16, {16, 256, 1}, none}.at("127.0.0.1")), 1u) << "as asked for";
}

TEST(EndpointCount, OthersKeepSharedMemory) {
  EXPECT_FALSE(ofi::is_ample({true, 64, 16})) << "a container by default";
  EXPECT_TRUE(ofi::is_ample({true, 16384, 16}));
  EXPECT_FALSE(ofi::is_ample({false, 16384, 16}));
}

TEST(EndpointCount, TheUserAsksByANumber) {
  const test::SetVariable variable(kEndpointsVariable, "7");
  const auto asked = asked_endpoints();
  ASSERT_TRUE(asked.ok());
  EXPECT_EQ(asked.value(), 7u);
}

TEST(EndpointCount, WhatIsNoNumberIsAnErrorThatNamesIt) {
  for (const char* wrong : {"0", "17", "-1", "4x", "four"}) {
    const test::SetVariable variable(kEndpointsVariable, wrong);
    const auto asked = asked_endpoints();
    ASSERT_FALSE(asked.ok());
    EXPECT_NE(asked.status().message().find(std::string("BRAID_FABRIC_ENDPOINTS='") + wrong +
                                            "': this is no number of endpoints"),
              std::string::npos);
  }
}

}  // namespace
}  // namespace braid::fabric
