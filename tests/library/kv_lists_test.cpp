// What the compiler says of programs that use kv.h: most of it needs no engine.
#include <gtest/gtest.h>

#include <type_traits>
#include <vector>

#include "braid/kv.h"

namespace braid {
namespace {

using Plan = Rotation::Plan;

// A plan reads its lists when it is submitted, so that one may not be of a vector which has ended.
template <typename List>
constexpr bool kMayBePlanned = std::is_assignable_v<decltype((std::declval<Plan&>().evict)), List>;
static_assert(kMayBePlanned<std::vector<BlockNumber>&>);
static_assert(kMayBePlanned<const std::vector<BlockNumber>&>);
static_assert(kMayBePlanned<BlockNumber (&)[2]>);
static_assert(kMayBePlanned<Rotation::Blocks>);
static_assert(!kMayBePlanned<std::vector<BlockNumber>>);
static_assert(!kMayBePlanned<std::vector<int>&>);

TEST(Plan, HasTheBlocksOfItsLists) {
  const std::vector<BlockNumber> leaving = {1, 2, 3};
  BlockNumber coming[] = {4, 5};
  Plan plan;
  plan.evict = leaving;
  plan.load = coming;
  EXPECT_EQ(plan.evict.data(), leaving.data());
  EXPECT_EQ(plan.evict.size(), 3u);
  EXPECT_EQ(plan.load.size(), 2u);
  plan.load = {coming, 1};
  EXPECT_EQ(plan.load.size(), 1u);
  plan.evict = {};
  EXPECT_EQ(plan.evict.size(), 0u);
}

}  // namespace
}  // namespace braid
