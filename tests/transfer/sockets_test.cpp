// How many rails an address of sockets gets.
#include "transfer/library/sockets.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/resource.h>

#include "support/set_variable.h"

namespace braid::transfer {
namespace {

constexpr size_t kDescriptors = 1 << 20;
constexpr double kGbps10 = 1.25, kGbps50 = 6.25, kGbps400 = 50;  // by their bits

TEST(TransferSockets, AnAddressGetsAsManyAsItsNicCanUse) {
  EXPECT_EQ(usual_sockets(kGbps10, {64, kDescriptors, 1}), 1u);
  EXPECT_EQ(usual_sockets(kGbps50, {64, kDescriptors, 1}), 3u);
  EXPECT_EQ(usual_sockets(kGbps400, {64, kDescriptors, 1}), 4u);
  EXPECT_EQ(usual_sockets(std::nullopt, {64, kDescriptors, 1}), 4u);  // loopback
}

TEST(TransferSockets, TheProgramKeepsCpusAndDescriptors) {
  EXPECT_EQ(usual_sockets(kGbps400, {8, kDescriptors, 1}), 2u);
  EXPECT_EQ(usual_sockets(kGbps400, {2, kDescriptors, 1}), 1u);
  EXPECT_EQ(usual_sockets(kGbps400, {192, kDescriptors, 8}), 2u);
  EXPECT_EQ(usual_sockets(kGbps400, {192, kDescriptors, 32}), 1u);
  EXPECT_EQ(usual_sockets(kGbps400, {192, 1024, 1}), 1u);
  EXPECT_EQ(usual_sockets(kGbps400, {192, 16384, 1}), 2u);
  EXPECT_EQ(usual_sockets(kGbps400, {0, 0, 0}), 1u) << "nothing is known";
}

TEST(TransferSockets, OnlyTheCpusThatTheThreadMayUseCount) {
  cpu_set_t before, one;
  ASSERT_EQ(sched_getaffinity(0, sizeof before, &before), 0);
  EXPECT_EQ(socket_room(1).cpus, static_cast<size_t>(CPU_COUNT(&before)));
  CPU_ZERO(&one);
  for (int cpu = 0; cpu < CPU_SETSIZE && CPU_COUNT(&one) == 0; ++cpu)
    if (CPU_ISSET(cpu, &before)) CPU_SET(cpu, &one);
  ASSERT_EQ(sched_setaffinity(0, sizeof one, &one), 0);
  EXPECT_EQ(socket_room(1).cpus, 1u);
  sched_setaffinity(0, sizeof before, &before);
}

TEST(TransferSockets, TheLimitOfDescriptorsIsTheOneThatIsInForce) {
  rlimit limit{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
  const rlimit lower{limit.rlim_cur / 2, limit.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &lower), 0);
  EXPECT_EQ(socket_room(1).descriptors, lower.rlim_cur);
  setrlimit(RLIMIT_NOFILE, &limit);
}

TEST(TransferSockets, WhatTheUserAsksForCounts) {
  const test::SetVariable variable(kSocketsVariable, "7");
  const auto asked = asked_sockets();
  ASSERT_TRUE(asked.ok());
  EXPECT_EQ((Sockets{asked.value(), {2, 1024, 1}}.at(kGbps10)), 7u);
}

}  // namespace
}  // namespace braid::transfer
