// What the options, the kind of copy and its own wishes leave of the cost model's plans.
#include "multipath/planner.h"

#include <gtest/gtest.h>

#include <vector>

namespace braid::multipath {
namespace {

struct Asked {
  MoverChoice mover = MoverChoice::kAuto;
  bool is_batch = false;
  bool spares_sms = false;
  bool has_kernels = true;
  PlanRequest moment{.paths = 4};
};

Mover mover_for(const Asked& asked) {
  Options options;
  options.mover = asked.mover;
  const Planner planner(default_costs(), options);
  const std::vector<Segment> segments(asked.is_batch ? 1024 : 1, {nullptr, 0, 64 << 10});
  Batch batch{Direction::kHostToDevice, segments, nullptr};
  batch.spares_sms = asked.spares_sms;
  PlanRequest request = asked.moment;
  request.mover = planner.mover_for(batch, asked.has_kernels);
  return planner.plan(batch, 64 << 20, request).mover;
}

TEST(PlannerTest, ContiguousCopiesGoByCopyEnginesAndBatchesByKernels) {
  EXPECT_EQ(mover_for({}), Mover::kCopyEngine);
  EXPECT_EQ(mover_for({.is_batch = true}), Mover::kKernel);
}

TEST(PlannerTest, TheUserMayHaveOneMoverAlone) {
  EXPECT_EQ(mover_for({.mover = MoverChoice::kKernel}), Mover::kKernel);
  EXPECT_EQ(mover_for({.mover = MoverChoice::kKernel, .is_batch = true}), Mover::kKernel);
  EXPECT_EQ(mover_for({.mover = MoverChoice::kCopyEngine}), Mover::kCopyEngine);
  EXPECT_EQ(mover_for({.mover = MoverChoice::kCopyEngine, .is_batch = true}), Mover::kNative);
}

TEST(PlannerTest, ABatchThatSparesTheSmsIsTheDrivers) {
  EXPECT_EQ(mover_for({.is_batch = true, .spares_sms = true}), Mover::kNative);
  EXPECT_EQ(mover_for({.spares_sms = true}), Mover::kCopyEngine);
}

TEST(PlannerTest, WithoutKernelsOrWhileTheProgramHoldsTheSmsBatchesAreTheDrivers) {
  EXPECT_EQ(mover_for({.is_batch = true, .has_kernels = false}), Mover::kNative);
  const PlanRequest blocked{.paths = 4, .kernels_blocked = true};
  EXPECT_EQ(mover_for({.is_batch = true, .moment = blocked}), Mover::kNative);
  EXPECT_EQ(mover_for({.moment = blocked}), Mover::kCopyEngine) << "they need no SM";
}

TEST(PlannerTest, WithoutARelayCopyEnginesHaveNothingToAdd) {
  EXPECT_EQ(mover_for({.moment = {.paths = 1}}), Mover::kNative);
}

}  // namespace
}  // namespace braid::multipath
