// What the options, the movers there are and a copy's own wishes leave of the cost model's plans.
#include "multipath/planner.h"

#include <gtest/gtest.h>

#include <vector>

namespace braid::multipath {
namespace {

Way way_of(MoverChoice mover, bool has_copy_engine, bool spares_sms, bool is_pooled = false) {
  Options options;
  options.mover = mover;
  const Planner planner(default_costs(), options, has_copy_engine);
  const Segment segment{nullptr, 0, 256 << 20};
  Batch batch{Direction::kHostToDevice, {&segment, 1}, nullptr};
  batch.spares_sms = spares_sms;
  return planner.plan(batch, segment.size_bytes, {.paths = 4, .is_pooled = is_pooled}).way;
}

TEST(PlannerTest, ACopyThatSparesTheSmsGoesByCopyEnginesOrTheDriver) {
  EXPECT_EQ(way_of(MoverChoice::kAuto, true, false), Way::kKernel);
  EXPECT_EQ(way_of(MoverChoice::kAuto, true, true), Way::kCopyEngine);
  EXPECT_EQ(way_of(MoverChoice::kAuto, false, true), Way::kNative);
  EXPECT_EQ(way_of(MoverChoice::kKernel, false, true), Way::kNative);
  EXPECT_EQ(way_of(MoverChoice::kCopyEngine, true, true), Way::kCopyEngine);
}

// Copy engines may not be sent to a pool's memory, which may be freed behind the copy.
TEST(PlannerTest, APoolsMemoryIsForKernelsOrTheDriver) {
  EXPECT_EQ(way_of(MoverChoice::kCopyEngine, true, false, true), Way::kKernel);
  EXPECT_EQ(way_of(MoverChoice::kCopyEngine, true, true, true), Way::kNative);
}

}  // namespace
}  // namespace braid::multipath
