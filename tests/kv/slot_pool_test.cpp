#include "kv/slot_pool.h"

#include <gtest/gtest.h>

namespace braid::kv {
namespace {

TEST(SlotPool, GivesTheLowestFirst) {
  SlotPool pool(130);
  for (Slot slot = 0; slot < 130; ++slot) EXPECT_EQ(pool.take()->slot, slot);
  EXPECT_FALSE(pool.take());
  for (const Slot slot : {129u, 3u, 70u}) pool.give_back(slot, {});
  EXPECT_EQ(pool.take()->slot, 3u);
  EXPECT_EQ(pool.take()->slot, 70u);
  EXPECT_EQ(pool.take()->slot, 129u);
}

TEST(SlotPool, AFencedSlotIsFreeOnceEachMarkHasPassed) {
  SlotPool pool(1);
  const Slot slot = pool.take()->slot;
  pool.give_back(slot, {.step = 2, .down = 1});
  EXPECT_EQ(pool.fenced_count(), 1u);
  EXPECT_FALSE(pool.take());
  pool.pass({.step = 2});
  EXPECT_FALSE(pool.take()) << "the copy is still under way";
  pool.pass({.down = 1});
  EXPECT_EQ(pool.fenced_count(), 0u);
  EXPECT_TRUE(pool.take());
}

TEST(SlotPool, WhoeverOrdersItselfMayHaveAFencedSlot) {
  SlotPool pool(2);
  (void)pool.take();
  (void)pool.take();
  pool.give_back(1, {.step = 5});
  pool.give_back(0, {.step = 6});
  EXPECT_FALSE(pool.take({.step = 4}));
  const auto taken = pool.take({.step = 6});
  ASSERT_TRUE(taken);
  EXPECT_EQ(taken->slot, 1u) << "what was fenced first is waited for shortest";
  EXPECT_EQ(taken->after, Marks{.step = 5});
  EXPECT_EQ(pool.owned_count(), 1u);
}

}  // namespace
}  // namespace braid::kv
