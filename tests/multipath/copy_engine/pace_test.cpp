// Slice sizes and lead follow what slices cost, as measured, and not one server's figures.
#include "multipath/copy_engine/pace.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace braid::multipath::copy_engine {
namespace {

constexpr uint64_t kMiB = uint64_t{1} << 20;
constexpr uint64_t kBuffer = 4 * kMiB;
constexpr Direction kIn = Direction::kHostToDevice;
constexpr Direction kOut = Direction::kDeviceToHost;

constexpr SliceCosts kUsual{.bytes_per_us = 50e3, .gap_us = 4, .entry_us = 0.3, .issue_us = 4.5};

Pace pace_of(const SliceCosts& costs, uint64_t asked_bytes = 0) {
  return Pace({costs, costs}, asked_bytes, kBuffer);
}

uint64_t bytes_of(const SliceCosts& costs, const Remainder& rest) {
  return pace_of(costs).slice_bytes(rest);
}

Remainder gib_over(int links) { return {.left_bytes = 1024 * kMiB, .links = links}; }

// A gap of 4 us at 50 GB/s: 0.5 % of a link that is alone is 40 MB.
TEST(PaceTest, AGapTakesAFewPerCentOfASlice) {
  for (const double gap_us : {3.5, 4.0, 5.0}) {
    SliceCosts costs = kUsual;
    costs.gap_us = gap_us;
    costs.issue_us = 0.1;
    for (const int links : {1, 4}) {
      const uint64_t bytes = bytes_of(costs, gib_over(links));
      const double slice_us = static_cast<double>(bytes) / costs.bytes_per_us;
      EXPECT_NEAR(gap_us / slice_us, links == 1 ? 0.005 : 0.05, 0.003) << gap_us << " " << links;
    }
  }
}

// Three under way must last until a thread that is late comes by.
TEST(PaceTest, SlicesOutlastTheThread) {
  SliceCosts free = kUsual;
  free.gap_us = 0;
  free.issue_us = 0.1;
  for (const int links : {1, 4}) {
    const auto slice_us = static_cast<double>(bytes_of(free, gib_over(links))) / free.bytes_per_us;
    EXPECT_GT(slice_us * Pace::kMostDepth, 100) << links;
  }
}

// An urgent copy waits for a slice of a bulk one.
TEST(PaceTest, NoGapMakesSlicesEndless) {
  SliceCosts slow = kUsual;
  slow.gap_us = 1e6;
  const auto slice_us = static_cast<double>(bytes_of(slow, gib_over(1))) / slow.bytes_per_us;
  EXPECT_LE(slice_us, 1000);
}

// What the cost model counts is what is cut.
TEST(PaceTest, TheCountOfSlicesIsAboutWhatIsCut) {
  for (const uint64_t asked_bytes : {uint64_t{0}, kMiB})
    for (const int links : {1, 2, 4, 8})
      for (const uint64_t mib : {8, 64, 1024}) {
        const Pace pace = pace_of(kUsual, asked_bytes);
        Remainder rest{.left_bytes = mib * kMiB, .links = links, .is_direct = links == 1};
        const double expected = pace.slices(rest);
        double cut = 0;
        for (; rest.left_bytes > 0; ++cut)
          rest.left_bytes -= std::min(rest.left_bytes, pace.slice_bytes(rest));
        EXPECT_NEAR(expected / cut, 1, 0.25) << asked_bytes << " " << links << " " << mib;
      }
}

TEST(PaceTest, NothingIsASliceToTheModel) {
  for (const int links : {1, 4}) EXPECT_EQ(pace_of(kUsual).slices({.links = links}), 1) << links;
}

TEST(PaceTest, SlicesGrowWithTheLinksBandwidth) {
  SliceCosts twice = kUsual;
  twice.bytes_per_us *= 2;
  EXPECT_NEAR(static_cast<double>(bytes_of(twice, gib_over(1))) /
                  static_cast<double>(bytes_of(kUsual, gib_over(1))),
              2, 0.02);
}

TEST(PaceTest, SlicesGrowWithWhatOneThreadIssuesForAllLinks) {
  SliceCosts slow_thread = kUsual;
  slow_thread.issue_us = 20;
  const Remainder rest = gib_over(8);
  EXPECT_GT(bytes_of(slow_thread, rest), 2 * bytes_of(kUsual, rest));
  EXPECT_GT(pace_of(slow_thread).lead_us(rest, kMiB), 2 * pace_of(kUsual).lead_us(rest, kMiB));
}

TEST(PaceTest, TheLeadGrowsWithThePaths) {
  const Pace pace = pace_of(kUsual);
  EXPECT_GT(pace.lead_us(gib_over(8), kMiB), pace.lead_us(gib_over(2), kMiB));
  Remainder relayed = gib_over(4);
  relayed.is_direct = false;
  const double in_us = pace.lead_us(relayed, kBuffer);
  relayed.direction = kOut;
  EXPECT_GT(pace.lead_us(relayed, kBuffer), in_us) << "it has to come over NVLink first";
}

TEST(PaceTest, SlicesShrinkTowardsTheEnd) {
  Remainder rest = gib_over(4);
  uint64_t before = UINT64_MAX;
  for (rest.left_bytes = 256 * kMiB; rest.left_bytes > kMiB; rest.left_bytes /= 2) {
    const uint64_t bytes = bytes_of(kUsual, rest);
    EXPECT_LE(bytes, before);
    before = bytes;
  }
  EXPECT_LE(before, kMiB) << "the gap may take a fifth of the last ones";
  EXPECT_GE(before, kMiB / 2);
}

// Small pieces make a slice's bytes slow: as many fewer go into one.
TEST(PaceTest, ABatchsSlicesTakeAsLongAsOthers) {
  Remainder rest = gib_over(4);
  const uint64_t whole = bytes_of(kUsual, rest);
  rest.piece_bytes = 8192;
  const uint64_t pieces = bytes_of(kUsual, rest);
  EXPECT_NEAR(pace_of(kUsual).link_us(rest, pieces), pace_of(kUsual).link_us(gib_over(4), whole),
              5);
  EXPECT_LT(pieces, whole / 2);
}

TEST(PaceTest, WhatIsRelayedFitsABuffer) {
  Remainder rest = gib_over(1);
  rest.is_direct = false;
  EXPECT_EQ(bytes_of(kUsual, rest), kBuffer);
  EXPECT_EQ(pace_of(kUsual, 64 * kMiB).slice_bytes(rest), kBuffer);
  rest.is_direct = true;
  EXPECT_EQ(pace_of(kUsual, 64 * kMiB).slice_bytes(rest), 64 * kMiB);
}

TEST(PaceTest, FiguresComeFromTheCostModel) {
  CostModel model = default_costs();
  model.of(kOut).engine_slice_gap_us = 11;
  model.of(kOut).engine_bytes_per_us = 22e3;
  const PaceCosts costs = pace_costs(model);
  EXPECT_EQ(costs[static_cast<size_t>(kOut)].gap_us, 11);
  EXPECT_EQ(costs[static_cast<size_t>(kOut)].bytes_per_us, 22e3);
  EXPECT_EQ(costs[static_cast<size_t>(kIn)].gap_us, model.of(kIn).engine_slice_gap_us);
}

}  // namespace
}  // namespace braid::multipath::copy_engine
