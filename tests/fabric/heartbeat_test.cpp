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
  EXPECT_FALSE(decide({100, 145}, kOptions, 149).is_silent);
  EXPECT_EQ(decide({100, 145}, kOptions, 149).again_ns, 150u);
  EXPECT_TRUE(decide({100, 145}, kOptions, 150).is_silent);
}

TEST(Heartbeat, APeerOfWhichAMessageIsMissingIsGivenUpAtTheLimitAndNotBefore) {
  const Pulse pulse{148, 148, 100};
  EXPECT_FALSE(decide(pulse, kOptions, 149).has_lost);
  EXPECT_EQ(decide(pulse, kOptions, 149).again_ns, 150u);
  EXPECT_TRUE(decide(pulse, kOptions, 150).has_lost);
  EXPECT_FALSE(decide({148, 148}, kOptions, 150).has_lost);
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

TEST(ReplayWindow, AMessageIsMissingUntilItComes) {
  ReplayWindow<1000> window;
  EXPECT_EQ(window.missing(), 0u) << "none has come";
  for (const uint64_t sequence : {1, 2}) EXPECT_TRUE(window.accept(sequence));
  EXPECT_EQ(window.missing(), 0u);
  for (const uint64_t sequence : {5, 7}) EXPECT_TRUE(window.accept(sequence));
  EXPECT_EQ(window.missing(), 3u);
  EXPECT_TRUE(window.accept(4));
  EXPECT_EQ(window.missing(), 3u);
  EXPECT_TRUE(window.accept(3));
  EXPECT_EQ(window.missing(), 6u);
  EXPECT_TRUE(window.accept(6));
  EXPECT_EQ(window.missing(), 0u);
  EXPECT_TRUE(window.accept(9));
  for (uint64_t sequence = 10; sequence < 3000; ++sequence) EXPECT_TRUE(window.accept(sequence));
  EXPECT_EQ(window.missing(), 8u) << "the window has left it behind";
}

}  // namespace
}  // namespace braid::fabric
