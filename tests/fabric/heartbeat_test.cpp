// When a peer is told that this engine is there, when it is given up, and which messages are new.
#include "fabric/policy/heartbeat.h"

#include <gtest/gtest.h>

#include "fabric/policy/replay_window.h"

namespace braid::fabric {
namespace {

constexpr HeartbeatOptions kOptions{10, 50};

TEST(Heartbeat, APeerIsToldOnceInAnInterval) {
  EXPECT_FALSE(decide({100, 100}, kOptions, 109).is_to_tell);
  EXPECT_EQ(decide({100, 100}, kOptions, 109).again_ns, 110u);
  EXPECT_TRUE(decide({100, 100}, kOptions, 110).is_to_tell);
  EXPECT_EQ(decide({100, 100}, kOptions, 110).again_ns, 120u);
}

TEST(Heartbeat, ASilentPeerIsGivenUpAtTheLimitAndNotBefore) {
  EXPECT_FALSE(decide({100, 145}, kOptions, 149).is_given_up);
  EXPECT_EQ(decide({100, 145}, kOptions, 149).again_ns, 150u);
  EXPECT_TRUE(decide({100, 145}, kOptions, 150).is_given_up);
}

TEST(Heartbeat, WhileThisProcessIsStoppedNobodyIsSilent) {
  AwakeClock clock;
  clock.look(1000, 10);
  clock.look(1007, 10);
  EXPECT_EQ(clock.now_ns(), 7u);
  clock.look(900'000, 10);
  EXPECT_EQ(clock.now_ns(), 17u);
}

TEST(ReplayWindow, EachMessageCountsOnceInAnyOrder) {
  constexpr uint64_t kMessages = 1000;
  ReplayWindow<kMessages> window;
  for (const uint64_t sequence : {3, 1, 2, 700, 5}) EXPECT_TRUE(window.accept(sequence));
  for (const uint64_t sequence : {3, 1, 2, 700, 5, 0}) EXPECT_FALSE(window.accept(sequence));
  EXPECT_TRUE(window.accept(1'000'000));
  EXPECT_FALSE(window.accept(1'000'000));
  EXPECT_FALSE(window.accept(700)) << "too old to tell";
  EXPECT_TRUE(window.accept(999'999));
  EXPECT_TRUE(window.accept(1'000'000 + kMessages - 1));
  EXPECT_FALSE(window.accept(1'000'000));
  EXPECT_FALSE(window.accept(999'999));
}

}  // namespace
}  // namespace braid::fabric
