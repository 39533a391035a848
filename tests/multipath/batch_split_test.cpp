// How much of a batch the driver carries over the target's own link, and where it is cut.
#include "multipath/batch_split.h"

#include <gtest/gtest.h>

#include <vector>

#include "multipath/cost_model.h"

namespace braid::multipath {
namespace {

constexpr uint64_t kMiB = uint64_t{1} << 20;
constexpr uint64_t kBatchBytes = 64 * kMiB;
constexpr uint64_t kSegments = 1024;

const DirectionCosts& costs() { return default_costs().of(Direction::kHostToDevice); }

PlanRequest batch(int paths, bool is_cold = false) {
  return {.size_bytes = kBatchBytes,
          .segments = kSegments,
          .paths = paths,
          .is_cold = is_cold,
          .spares_target = true};
}

double native_us(uint64_t size_bytes, uint64_t segments) {
  int paths = 1;
  PlanRequest request = batch(1);
  request.size_bytes = size_bytes;
  request.segments = segments;
  return expected_us(default_costs(), Mover::kNative, request, paths);
}

BatchSplit split(int relays, bool is_cold = false) {
  return split_batch(costs(), {.size_bytes = kBatchBytes,
                               .segments = kSegments,
                               .relays = relays,
                               .native_us = native_us(kBatchBytes, kSegments),
                               .is_cold = is_cold});
}

TEST(BatchSplit, WithoutARelayTheDriverCarriesAll) {
  EXPECT_EQ(split(0).own_bytes, kBatchBytes);
  EXPECT_NEAR(split(0).expected_us, native_us(kBatchBytes, kSegments), 1e-6);
}

// As long as nothing else limits them: the own link's share then takes the driver as long as all.
TEST(BatchSplit, BothEndTogether) {
  const BatchSplit one = split(1);
  const double part = static_cast<double>(one.own_bytes) / kBatchBytes;
  const auto own_segments = static_cast<uint64_t>(part * kSegments);
  const double own_us = native_us(one.own_bytes, own_segments) + costs().kernel_launch_us;
  const double relay_work_us =
      kBatchBytes / costs().kernel_bytes_per_us + kSegments * costs().kernel_segment_us;
  const double relay_us = costs().kernel_start_us + (1 - part) * relay_work_us;
  EXPECT_NEAR(own_us, one.expected_us, one.expected_us / 100);
  EXPECT_NEAR(relay_us, one.expected_us, one.expected_us / 100);
}

TEST(BatchSplit, MoreRelaysLeaveLessToTheOwnLink) {
  for (int relays = 1; relays < 4; ++relays) {
    EXPECT_LT(split(relays).own_bytes, split(relays - 1).own_bytes);
    EXPECT_LT(split(relays).expected_us, split(relays - 1).expected_us);
    EXPECT_EQ(split(relays).relays, relays);
  }
  EXPECT_GT(split(3, true).own_bytes, split(3).own_bytes) << "cold relays begin later";
}

TEST(BatchSplit, ABatchThatEndsBeforeRelaysBeginIsTheDrivers) {
  const BatchSplit small = split_batch(
      costs(),
      {.size_bytes = 8192, .segments = 2, .relays = 3, .native_us = costs().native_start_us + 1});
  EXPECT_EQ(small.own_bytes, 8192u);
  EXPECT_EQ(small.relays, 0);
}

TEST(BatchSplit, ThePlanSaysWhatTheSplitTakes) {
  const Plan chosen = plan(default_costs(), batch(4));
  EXPECT_EQ(chosen.mover, Mover::kKernel);
  EXPECT_EQ(chosen.paths, 4);
  EXPECT_DOUBLE_EQ(chosen.expected_us(), split(3).expected_us);
  EXPECT_EQ(plan(default_costs(), batch(1)).mover, Mover::kNative);
}

TEST(BatchSplit, SmallSegmentsStayWhole) {
  const std::vector<Segment> segments(10, {nullptr, 0, 64 << 10});
  EXPECT_EQ(cut_near(segments, 0), 0u);
  EXPECT_EQ(cut_near(segments, 3 * (64 << 10) + 100), 3u * (64 << 10));
  EXPECT_EQ(cut_near(segments, 4 * (64 << 10) - 100), 4u * (64 << 10));
  EXPECT_EQ(cut_near(segments, 10 * (64 << 10)), 10u * (64 << 10));
}

TEST(BatchSplit, LargeOnesAreCut) {
  const std::vector<Segment> segments{{nullptr, 0, 1000}, {nullptr, 0, 100 * kMiB}};
  EXPECT_EQ(cut_near(segments, 1000 + 50 * kMiB + 7), 1000 + 50 * kMiB);
}

}  // namespace
}  // namespace braid::multipath
