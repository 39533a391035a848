// When a rail is suspect, down, and back: the policy alone.
#include "fabric/policy/rail_health.h"

#include <gtest/gtest.h>

namespace braid::fabric {
namespace {

constexpr uint64_t kMs = 1'000'000;

TEST(RailHealth, ASuspectRailIsProbedAtOnceAndIsBackWhenTheProbeIs) {
  RailHealth health;
  EXPECT_EQ(health.rank(), 0u);
  EXPECT_FALSE(health.wants_probe(5 * kMs));
  health.suspect(5 * kMs);
  EXPECT_EQ(health.state(), RailState::kSuspect);
  EXPECT_TRUE(health.wants_probe(5 * kMs));
  health.probe_begun();
  EXPECT_FALSE(health.wants_probe(6 * kMs)) << "one at a time";
  health.probe_ended(true, 7 * kMs);
  EXPECT_EQ(health.state(), RailState::kUp);
}

TEST(RailHealth, ARailThatIsDownIsTriedEverLessOften) {
  RailHealth health;
  uint64_t now_ns = 0, pause_ns = RailHealth::kPauseMinNs;
  health.suspect(now_ns);
  for (int probe = 0; probe < 20; ++probe) {
    health.probe_begun();
    health.probe_ended(false, now_ns);
    EXPECT_EQ(health.state(), RailState::kDown);
    EXPECT_EQ(health.next_probe_ns(), now_ns + pause_ns);
    EXPECT_FALSE(health.wants_probe(now_ns + pause_ns - 1));
    now_ns += pause_ns;
    EXPECT_TRUE(health.wants_probe(now_ns));
    pause_ns = std::min(2 * pause_ns, RailHealth::kPauseMaxNs);
  }
  EXPECT_EQ(pause_ns, RailHealth::kPauseMaxNs);
}

TEST(RailHealth, ARailThatComesAndGoesWaitsLongerEachTime) {
  RailHealth health;
  uint64_t now_ns = 0;
  for (uint64_t pause_ms = 0; pause_ms < 8; pause_ms = pause_ms == 0 ? 1 : 2 * pause_ms) {
    health.suspect(now_ns);
    EXPECT_EQ(health.next_probe_ns(), now_ns + pause_ms * kMs);
    now_ns += pause_ms * kMs;
    health.probe_begun();
    health.probe_ended(true, now_ns);
  }
  now_ns += RailHealth::kSteadyNs;
  health.suspect(now_ns);
  EXPECT_TRUE(health.wants_probe(now_ns)) << "it was well for long enough";
}

TEST(RailHealth, ARetiredRailIsTheLastChoiceAndNotProbed) {
  RailHealth suspect, down, retired;
  suspect.suspect(0);
  down.suspect(0);
  down.probe_begun();
  down.probe_ended(false, 0);
  retired.is_retired_there = true;
  EXPECT_LT(RailHealth().rank(), suspect.rank());
  EXPECT_LT(suspect.rank(), down.rank());
  EXPECT_LT(down.rank(), retired.rank());
  retired.suspect(0);
  EXPECT_EQ(retired.state(), RailState::kRetired);
  EXPECT_FALSE(retired.wants_probe(kMs));
  retired.is_retired_there = false;
  EXPECT_TRUE(retired.wants_probe(kMs));
}

}  // namespace
}  // namespace braid::fabric
