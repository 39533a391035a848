#include "kv/block_table.h"

#include <gtest/gtest.h>

namespace braid::kv {
namespace {

class BlockTableTest : public ::testing::Test {
 protected:
  BlockId sealed() {
    table_.begin_step();
    const BlockId id = table_.create().id;
    EXPECT_EQ(table_.seal(id), Refusal::kNone);
    return id;
  }
  BlockId synced() {
    const BlockId id = sealed();
    EXPECT_EQ(table_.begin_sync(id, ++down_).refusal, Refusal::kNone);
    EXPECT_EQ(table_.end_sync(id, true), Refusal::kNone);
    return id;
  }
  BlockId host_only() {
    const BlockId id = synced();
    EXPECT_EQ(table_.end_use(id), Refusal::kNone);
    EXPECT_EQ(table_.evict(id), Refusal::kNone);
    return id;
  }
  BlockState state(BlockId id) const { return table_.find(id)->state; }

  BlockTable table_{{.gpu = 4, .host = 4}};
  Mark down_ = 0;
};

TEST_F(BlockTableTest, ABlockGoesRound) {
  const BlockId id = host_only();
  EXPECT_EQ(state(id), BlockState::kHostOnly);
  EXPECT_EQ(table_.gpu().fenced_count(), 1u) << "the step and the copy may still read the slot";
  const auto load = table_.begin_load(id, 1, Landing::kOrdered);
  EXPECT_EQ(load.refusal, Refusal::kNone);
  EXPECT_EQ(state(id), BlockState::kLoading);
  EXPECT_EQ(table_.end_load(id, true), Refusal::kNone);
  EXPECT_EQ(state(id), BlockState::kSynced);
  EXPECT_EQ(table_.release(id), Refusal::kNone);
  EXPECT_EQ(table_.find(id), nullptr);
  EXPECT_EQ(table_.size(), 0u);
}

TEST_F(BlockTableTest, ACopyToTheHostComesAfterTheStepThatWroteLast) {
  const BlockId id = sealed();
  const auto copy = table_.begin_sync(id, 1);
  EXPECT_EQ(copy.after, Marks{.step = table_.step()});
  EXPECT_EQ(table_.begin_sync(id, 2).refusal, Refusal::kCopying);
}

TEST_F(BlockTableTest, ADirtyBlockIsNeitherCopiedNorShared) {
  const BlockId id = table_.create().id;
  EXPECT_EQ(table_.begin_sync(id, 1).refusal, Refusal::kWrongState);
  EXPECT_EQ(table_.add_reference(id), Refusal::kWrongState);
}

// Section 4.3.2: a dirty block that is preempted leaves once its copy has landed, no earlier.
TEST_F(BlockTableTest, ASyncingBlockLeavesWhenItsCopyHasLanded) {
  const BlockId id = sealed();
  (void)table_.begin_sync(id, 1);
  (void)table_.end_use(id);
  EXPECT_EQ(table_.evict(id), Refusal::kNone);
  EXPECT_EQ(table_.gpu().owned_count(), 1u);
  EXPECT_EQ(table_.end_sync(id, true), Refusal::kNone);
  EXPECT_EQ(state(id), BlockState::kHostOnly);
  EXPECT_EQ(table_.gpu().owned_count(), 0u);
}

TEST_F(BlockTableTest, ABlockThatIsUsedDoesNotLeaveByItsCopy) {
  const BlockId id = sealed();
  EXPECT_EQ(table_.begin_sync(id, 1, {}, Then::kLeaves).refusal, Refusal::kInUse);
  EXPECT_EQ(state(id), BlockState::kSealed);
  (void)table_.end_use(id);
  EXPECT_EQ(table_.begin_sync(id, 1, {}, Then::kLeaves).refusal, Refusal::kNone);
  EXPECT_EQ(table_.end_sync(id, true), Refusal::kNone);
  EXPECT_EQ(state(id), BlockState::kHostOnly);
}

TEST_F(BlockTableTest, ABlockWhoseCopyFailedStaysWhereItsBytesAre) {
  const BlockId id = sealed();
  (void)table_.begin_sync(id, 1);
  (void)table_.end_use(id);
  (void)table_.evict(id);
  EXPECT_EQ(table_.end_sync(id, false), Refusal::kNone);
  EXPECT_EQ(state(id), BlockState::kSealed) << "it does not leave";
  EXPECT_EQ(table_.host().fenced_count(), 1u) << "the failed copy may still write the slot";
  EXPECT_EQ(table_.next_to_sync(table_.step()), id) << "it is copied again";

  const BlockId other = host_only();
  (void)table_.begin_load(other, 1, Landing::kPolled);
  EXPECT_EQ(table_.end_load(other, false), Refusal::kNone);
  EXPECT_EQ(state(other), BlockState::kHostOnly);
  EXPECT_EQ(table_.begin_load(other, 2, Landing::kPolled).refusal, Refusal::kNone);
}

TEST_F(BlockTableTest, ASharedPrefixLeavesWithItsLastUser) {
  const BlockId id = synced();
  EXPECT_EQ(table_.add_reference(id), Refusal::kNone);
  EXPECT_EQ(table_.begin_use(id), Refusal::kNone);
  EXPECT_EQ(table_.begin_use(id), Refusal::kInUse) << "as many users as references";
  EXPECT_EQ(table_.end_use(id), Refusal::kNone);
  EXPECT_EQ(table_.evict(id), Refusal::kInUse);
  EXPECT_EQ(table_.reopen(id), Refusal::kShared);
  EXPECT_EQ(table_.end_use(id), Refusal::kNone);
  EXPECT_EQ(table_.evict(id), Refusal::kNone);
  EXPECT_EQ(table_.release(id), Refusal::kNone);
  EXPECT_NE(table_.find(id), nullptr) << "the other request still needs it";
}

TEST_F(BlockTableTest, ABlockThatIsKeptDoesNotLeave) {
  const BlockId id = sealed();
  (void)table_.begin_sync(id, 1);
  (void)table_.end_use(id);
  (void)table_.evict(id);
  EXPECT_EQ(table_.keep(id), Refusal::kNone);
  (void)table_.end_sync(id, true);
  EXPECT_EQ(state(id), BlockState::kSynced);
  EXPECT_EQ(table_.evict(id), Refusal::kNone);
  EXPECT_EQ(table_.keep(id), Refusal::kWrongState) << "it has left";
  (void)table_.begin_load(id, 1, Landing::kOrdered);
  EXPECT_EQ(table_.keep(id), Refusal::kCopying);
  (void)table_.release(id);
  EXPECT_EQ(table_.keep(id), Refusal::kUnknownBlock);
}

TEST_F(BlockTableTest, ABlockThatIsUsedAgainDoesNotLeave) {
  const BlockId id = sealed();
  (void)table_.begin_sync(id, 1);
  (void)table_.end_use(id);
  (void)table_.evict(id);
  EXPECT_EQ(table_.begin_use(id), Refusal::kNone);
  (void)table_.end_sync(id, true);
  EXPECT_EQ(state(id), BlockState::kSynced);
}

// The slot of a block that ends while it is copied is nobody's until the copy has ended.
TEST_F(BlockTableTest, AbortingDuringACopyFencesBothSlots) {
  const BlockId id = sealed();
  const Mark step = table_.step();
  (void)table_.begin_sync(id, 7);
  (void)table_.end_use(id);
  EXPECT_EQ(table_.release(id), Refusal::kNone);
  EXPECT_EQ(table_.end_sync(id, true), Refusal::kUnknownBlock);
  table_.pass({.step = step});
  EXPECT_EQ(table_.gpu().fenced_count(), 1u);
  EXPECT_EQ(table_.host().fenced_count(), 1u);
  table_.pass({.down = 7});
  EXPECT_EQ(table_.gpu().free_count(), 4u);
  EXPECT_EQ(table_.host().free_count(), 4u);
}

TEST_F(BlockTableTest, ALastBlockIsWrittenAgainAfterItsRequestResumes) {
  const BlockId id = host_only();
  (void)table_.begin_load(id, 1, Landing::kOrdered);
  (void)table_.begin_use(id);
  EXPECT_EQ(table_.reopen(id), Refusal::kNone);
  EXPECT_EQ(table_.end_load(id, true), Refusal::kNone);
  EXPECT_EQ(state(id), BlockState::kDirty);
  EXPECT_EQ(table_.host().owned_count(), 0u) << "the host's copy is of the past";

  // Full already, by the step that is ordered behind the load.
  const BlockId full = host_only();
  (void)table_.begin_load(full, 2, Landing::kOrdered);
  (void)table_.begin_use(full);
  (void)table_.reopen(full);
  EXPECT_EQ(table_.seal(full), Refusal::kNone);
  EXPECT_EQ(table_.next_to_sync(table_.step()), std::nullopt) << "it has not landed";
  EXPECT_EQ(table_.end_load(full, true), Refusal::kNone);
  EXPECT_EQ(state(full), BlockState::kSealed);
  EXPECT_EQ(table_.next_to_sync(table_.step()), full);
}

TEST_F(BlockTableTest, ABlockThatIsPolledForIsUsedOnceItHasLanded) {
  const BlockId id = host_only();
  (void)table_.begin_load(id, 1, Landing::kPolled);
  EXPECT_EQ(table_.begin_use(id), Refusal::kCopying);
  EXPECT_EQ(table_.reopen(id), Refusal::kCopying);
  (void)table_.end_load(id, true);
  EXPECT_EQ(table_.begin_use(id), Refusal::kNone);
}

TEST_F(BlockTableTest, RoomOnTheHostIsMadeBySyncedBlocks) {
  std::vector<BlockId> ids;
  for (int i = 0; i < 4; ++i) ids.push_back(host_only());
  table_.pass({.step = table_.step(), .down = down_});
  const BlockId last = sealed();
  EXPECT_EQ(table_.begin_sync(last, 9).refusal, Refusal::kNoHostSlot);
  EXPECT_EQ(state(last), BlockState::kSealed);
  EXPECT_EQ(table_.lose(ids[0]), Refusal::kNone);
  EXPECT_EQ(state(ids[0]), BlockState::kLost);
  EXPECT_EQ(table_.begin_sync(last, 9).refusal, Refusal::kNone);
  (void)table_.end_sync(last, true);
  EXPECT_EQ(table_.drop_host(last), Refusal::kNone);
  EXPECT_EQ(state(last), BlockState::kSealed);
}

TEST_F(BlockTableTest, WithoutTheGpuWhatTheHostHasIsLeft) {
  const BlockId on_host = host_only();
  const BlockId both = synced();
  const BlockId syncing = sealed();
  (void)table_.begin_sync(syncing, ++down_);
  const BlockId dirty = table_.create().id;
  table_.lose_gpu();
  EXPECT_EQ(state(on_host), BlockState::kHostOnly);
  EXPECT_EQ(state(both), BlockState::kHostOnly);
  EXPECT_EQ(state(syncing), BlockState::kLost);
  EXPECT_EQ(state(dirty), BlockState::kLost);
  EXPECT_EQ(table_.gpu().free_count(), 4u);
  EXPECT_EQ(table_.end_use(dirty), Refusal::kNone);
  EXPECT_EQ(table_.release(dirty), Refusal::kNone);
  table_.begin_step();
  const BlockId fresh = table_.create().id;
  (void)table_.end_use(fresh);
  (void)table_.release(fresh);
  EXPECT_EQ(table_.gpu().fenced_count(), 1u) << "fences hold again";
}

TEST_F(BlockTableTest, WritesThroughInTheOrderOfSealing) {
  const BlockId first = sealed(), second = sealed();
  EXPECT_EQ(table_.next_to_sync(0), std::nullopt) << "its step has not ended";
  EXPECT_EQ(table_.next_to_sync(1), first);
  (void)table_.begin_sync(first, 1);
  EXPECT_EQ(table_.next_to_sync(1), std::nullopt);
  EXPECT_EQ(table_.next_to_sync(2), second);
}

TEST_F(BlockTableTest, IdsAreNotUsedTwice) {
  const BlockId id = table_.create().id;
  (void)table_.end_use(id);
  (void)table_.release(id);
  const BlockId next = table_.create().id;
  EXPECT_NE(id, next);
  EXPECT_EQ(table_.end_use(id), Refusal::kUnknownBlock);
}

}  // namespace
}  // namespace braid::kv
