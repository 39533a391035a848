// What the options, the movers there are and a copy's own wishes leave of the cost model's plans.
#include "multipath/planner.h"

#include <gtest/gtest.h>

#include <vector>

namespace braid::multipath {
namespace {

Mover mover_for(MoverChoice mover, bool has_copy_engine, bool spares_sms, bool is_pooled = false) {
  Options options;
  options.mover = mover;
  const Planner planner(default_costs(), options, has_copy_engine);
  const Segment segment{nullptr, 0, 64 << 20};
  Batch batch{Direction::kHostToDevice, {&segment, 1}, nullptr};
  batch.spares_sms = spares_sms;
  return planner.plan(batch, segment.size_bytes, {.paths = 4, .is_pooled = is_pooled}).mover;
}

TEST(PlannerTest, ACopyThatSparesTheSmsGoesByCopyEnginesOrTheDriver) {
  EXPECT_EQ(mover_for(MoverChoice::kAuto, true, false), Mover::kKernel);
  EXPECT_EQ(mover_for(MoverChoice::kAuto, true, true), Mover::kCopyEngine);
  EXPECT_EQ(mover_for(MoverChoice::kAuto, false, true), Mover::kNative);
  EXPECT_EQ(mover_for(MoverChoice::kKernel, false, true), Mover::kNative);
  EXPECT_EQ(mover_for(MoverChoice::kCopyEngine, true, true), Mover::kCopyEngine);
}

// Copy engines may not be sent to a pool's memory, which may be freed behind the copy.
TEST(PlannerTest, APoolsMemoryIsForKernelsOrTheDriver) {
  EXPECT_EQ(mover_for(MoverChoice::kCopyEngine, true, false, true), Mover::kKernel);
  EXPECT_EQ(mover_for(MoverChoice::kCopyEngine, true, true, true), Mover::kNative);
}

}  // namespace
}  // namespace braid::multipath
