// When a path is suspect, down, and back.
#include "transfer/policy/health.h"

#include <gtest/gtest.h>

namespace braid::transfer {
namespace {

constexpr uint64_t kMs = 1'000'000;

/// Lets the probe that is due fail or pass, and returns when it was begun.
uint64_t probe(Health& health, bool ok) {
  const uint64_t now_ns = health.next_ns(true);
  EXPECT_TRUE(health.wants_probe(now_ns, true));
  health.probe_begun(now_ns, 0);
  EXPECT_FALSE(health.wants_probe(now_ns, true)) << "one at a time";
  health.probe_ended(ok, now_ns + 1, 0);
  return now_ns;
}

TEST(Health, AnOverduePathIsProbedAtOnceAndComesBackByRounds) {
  Health health;
  health.overdue(5 * kMs, 0);
  EXPECT_EQ(health.state(), PathState::kSuspect);
  EXPECT_FALSE(health.is_usable()) << "nothing new goes there";
  EXPECT_EQ(probe(health, true), 5 * kMs);
  EXPECT_EQ(health.state(), PathState::kRejoining);
  uint32_t windows = 0, slices = 0;
  for (uint32_t before = 0; health.state() != PathState::kUp; ++slices) {
    if (health.window_slices() != before) ++windows;
    before = health.window_slices();
    health.delivered(6 * kMs);
    ASSERT_LT(slices, 1000u);
  }
  EXPECT_EQ(windows, 5u);
  EXPECT_EQ(slices, 2u + 4 + 8 + 16 + 32);
}

TEST(Health, TwoLostProbesTakeItDownAndPausesGrow) {
  Health health;
  health.overdue(0, 0);
  probe(health, false);
  EXPECT_EQ(health.state(), PathState::kSuspect) << "one probe may be lost by chance";
  uint64_t before_ns = probe(health, false);
  EXPECT_EQ(health.state(), PathState::kDown);
  uint64_t pause_ns = 0;
  for (int i = 0; i < 8; ++i) {
    const uint64_t at_ns = probe(health, false);
    EXPECT_GE(at_ns - before_ns, pause_ns);
    EXPECT_LE(at_ns - before_ns, Health::kPauseMaxWantedNs + kMs) << "something waits for it";
    pause_ns = at_ns - before_ns;
    before_ns = at_ns;
  }
  EXPECT_GE(health.next_ns(false) - before_ns, 900 * kMs) << "nothing waits for it";
}

TEST(Health, AnErrorConfirmsASuspicion) {
  Health health;
  health.failed(0, 0);
  EXPECT_EQ(health.state(), PathState::kSuspect);
  health.failed(1, 0);
  EXPECT_EQ(health.state(), PathState::kDown);
}

TEST(Health, ALostProbeIsNoticedAndItsLateAnswerShowsThatThePathWorks) {
  Health health;
  health.overdue(0, 0);
  health.probe_begun(0, 0);
  EXPECT_FALSE(health.check(4 * kMs, 0));
  EXPECT_TRUE(health.check(5 * kMs, 0));
  EXPECT_FALSE(health.is_probe_out());
  health.probe_begun(5 * kMs, 0);
  EXPECT_TRUE(health.check(10 * kMs, 0));
  EXPECT_EQ(health.state(), PathState::kDown);
  EXPECT_TRUE(health.answered_late());
  EXPECT_EQ(health.state(), PathState::kRejoining);
  EXPECT_FALSE(health.answered_late()) << "it is in use already";
}

TEST(Health, ThoseThatFailAgainSoonAreTriedLaterAndTimeForgives) {
  const auto pause_after = [](uint64_t steady_ns) {
    Health health;
    uint64_t now_ns = 0;
    for (int i = 0; i < 4; ++i) {
      health.go_down(now_ns, 0);
      now_ns = health.next_ns(true);
      probe(health, true);
      while (health.state() != PathState::kUp) health.delivered(now_ns);
      now_ns += steady_ns;
    }
    health.go_down(now_ns, 0);
    return health.next_ns(true) - now_ns;
  };
  EXPECT_EQ(pause_after(0), 160 * kMs);
  EXPECT_EQ(pause_after(10'000 * kMs), 10 * kMs);
}

TEST(Health, ANicIsAtFaultWhenSeveralPairsAreAndNoneDelivers) {
  EXPECT_FALSE(is_nic_at_fault({1, 100, 50})) << "one pair may be the peer's fault";
  EXPECT_TRUE(is_nic_at_fault({2, 100, 50}));
  EXPECT_FALSE(is_nic_at_fault({2, 100, 150})) << "another pair has delivered since";
}

}  // namespace
}  // namespace braid::transfer
