#include "fabric/imm_counters.h"

#include <gtest/gtest.h>

namespace braid::fabric {
namespace {

TEST(ImmCounters, WhatArrivesBeforeAnybodyAsksIsCounted) {
  ImmCounters counters;
  const uint32_t immediate = make_immediate(7, 1);
  counters.arrived(immediate);
  counters.arrived(immediate);
  ASSERT_TRUE(counters.claim(immediate).ok());
  counters.arrived(immediate);
  EXPECT_EQ(counters.count(immediate), 3u);
  EXPECT_EQ(counters.strays(), 0u);
}

TEST(ImmCounters, TwoOwnersAreAnError) {
  ImmCounters counters;
  ASSERT_TRUE(counters.claim(make_immediate(7, 1)).ok());
  EXPECT_FALSE(counters.claim(make_immediate(7, 1)).ok());
  ASSERT_TRUE(counters.release(make_immediate(7, 1)).ok());
  EXPECT_FALSE(counters.release(make_immediate(7, 1)).ok());
  EXPECT_FALSE(counters.claim(make_immediate(7, 1)).ok()) << "its epoch has ended";
  EXPECT_TRUE(counters.claim(make_immediate(7, 2)).ok());
}

TEST(ImmCounters, LateArrivalsAreStraysAndDisturbNoLaterEpoch) {
  ImmCounters counters;
  const uint32_t first = counters.acquire().value();
  counters.arrived(first);
  ASSERT_TRUE(counters.release(first, 1).ok());
  const uint32_t next = make_immediate(slot_of(first), epoch_of(first) + 1);
  ASSERT_TRUE(counters.claim(next).ok());
  counters.arrived(first);
  EXPECT_EQ(counters.strays(), 1u);
  EXPECT_EQ(counters.count(next), 0u);
}

TEST(ImmCounters, ASlotRestsUntilItsStraysHaveComeOrAreForgiven) {
  ImmCounters counters;
  const uint32_t short_one = counters.acquire().value();
  const uint32_t forgiven = counters.acquire().value();
  ASSERT_TRUE(counters.release(short_one, 2).ok());
  ASSERT_TRUE(counters.release(forgiven, 1).ok());
  // Free slots are used in turns.
  const auto is_used = [&](uint32_t wanted) {
    bool is_found = false;
    for (int i = 0; i < 1000; ++i) {
      const uint32_t immediate = counters.acquire().value();
      is_found = is_found || slot_of(immediate) == slot_of(wanted);
      EXPECT_TRUE(counters.release(immediate).ok());
    }
    return is_found;
  };
  EXPECT_FALSE(is_used(short_one));
  EXPECT_FALSE(is_used(forgiven));
  counters.arrived(short_one);
  EXPECT_FALSE(is_used(short_one));
  counters.arrived(short_one);
  EXPECT_TRUE(is_used(short_one));
  EXPECT_FALSE(is_used(forgiven));
  counters.forgive(forgiven);
  EXPECT_TRUE(is_used(forgiven));
}

TEST(ImmCounters, EpochsComeRound) {
  ImmCounters counters;
  for (uint32_t epoch = 1; epoch < 10000; ++epoch) {
    const uint32_t immediate = make_immediate(3, epoch);
    ASSERT_TRUE(counters.claim(immediate).ok()) << epoch;
    counters.arrived(immediate);
    ASSERT_EQ(counters.count(immediate), 1u) << epoch;
    ASSERT_TRUE(counters.release(immediate).ok());
    counters.arrived(immediate);
  }
  EXPECT_EQ(counters.strays(), 9999u);
}

TEST(ImmCounters, AFloodOfUnknownNumbersIsLimitedAndHidesNothingThatComesAfterIt) {
  ImmCounters counters(10);
  for (uint32_t slot = 0; slot < 1000; ++slot) counters.arrived(make_immediate(slot, 1));
  EXPECT_EQ(counters.strays(), 990u);
  EXPECT_TRUE(counters.claim(make_immediate(995, 1)).ok());
  EXPECT_EQ(counters.count(make_immediate(995, 1)), 1u);
  const uint32_t early = make_immediate(2000, 1);
  counters.arrived(early);
  EXPECT_TRUE(counters.claim(early).ok());
  EXPECT_EQ(counters.count(early), 1u) << "the flood is not for ever";
}

/// A liar knows which number comes next. Nobody honest does, before it is handed out.
TEST(ImmCounters, WhatCameBeforeANumberWasHandedOutCountsForNobody) {
  ImmCounters counters;
  for (uint32_t slot = kFirstAcquired; slot < kFirstAcquired + 100; ++slot)
    counters.arrived(make_immediate(slot, 1), 3);
  const uint32_t immediate = counters.acquire().value();
  ASSERT_EQ(immediate, make_immediate(kFirstAcquired, 1));
  EXPECT_EQ(counters.count(immediate), 0u);
  EXPECT_EQ(counters.strays(), 3u);
  counters.arrived(immediate);
  EXPECT_EQ(counters.count(immediate), 1u);
}

}  // namespace
}  // namespace braid::fabric
