// What a caller of the rotation engine relies on: bytes that come back, orders without waits,
// budgets, groups, and failures that leave each block where its good bytes are.
#include "kv/rotation_engine.h"

#include <array>

#include "kv/rig.h"
#include "support/gate.h"

namespace braid::kv::test {
namespace {

using braid::test::Gate;

class RotationTest : public KvTest {};

TEST_F(RotationTest, ABlockComesBackAsItWas) {
  open({});
  make_a_round_trip();
}

TEST_F(RotationTest, BlockFirstCachesToo) {
  open({.order = GpuOrder::kBlockFirst});
  make_a_round_trip();
}

TEST_F(RotationTest, ALoadThatIsPolledForIsUsedOnceItIsReported) {
  open({});
  const BlockId id = host_only_block(5);
  rotation().submit({.load = {&id, 1}, .landing = Landing::kPolled});
  EXPECT_EQ(rotation().begin_use(id), Refusal::kCopying);
  EXPECT_EQ(rotation().drain().loaded, std::vector{id});
  EXPECT_EQ(rotation().begin_use(id), Refusal::kNone);
  read_in_a_step(id, 5);
}

// Its caller has given it up, wants it back, and cannot see that it has not left yet.
TEST_F(RotationTest, ALoadOfABlockThatIsLeavingKeepsIt) {
  open({});
  const BlockId id = unused_block(6);
  EXPECT_TRUE(rotation().submit({.evict = {&id, 1}}).failure.ok());
  EXPECT_EQ(state(id), BlockState::kSyncing);
  const Submitted submitted =
      rotation().submit({.load = {&id, 1}, .landing = Landing::kPolled}, {.up_bytes = 0});
  EXPECT_EQ(submitted.loads_left, 0u) << "nothing is to be copied";
  EXPECT_EQ(rotation().drain().loaded, std::vector{id});
  EXPECT_EQ(state(id), BlockState::kSynced);
  EXPECT_TRUE(rotation().poll().loaded.empty()) << "once";
  EXPECT_EQ(rotation().begin_use(id), Refusal::kNone);
  read_in_a_step(id, 6);
}

TEST_F(RotationTest, ALoadOfABlockThatIsThereIsReported) {
  open({});
  const std::array<BlockId, 4> blocks{synced_block(1), unused_block(2), unused_block(3),
                                      host_only_block(4)};
  const auto& [used, ended, evicted, cold] = blocks;
  EXPECT_TRUE(rotation().submit({.load = blocks, .writes_through = false}).failure.ok());
  EXPECT_EQ(rotation().release(ended), Refusal::kNone);
  EXPECT_TRUE(rotation().submit({.evict = {&evicted, 1}}).failure.ok());
  EXPECT_EQ(rotation().drain().loaded, (std::vector{cold, used})) << "others want the rest no more";
}

// Section 4.3.2: full blocks are written through while their request runs, so that a preemption
// copies the last one alone.
TEST_F(RotationTest, APreemptionCopiesTheLastBlockAlone) {
  open({});
  std::array<BlockId, 4> blocks;
  for (BlockId& id : blocks) {
    id = sealed_block(1);
    if (id != blocks.back()) rotation().submit({});
  }
  settle();
  for (const BlockId id : blocks) (void)rotation().end_use(id);
  const Submitted submitted = rotation().submit({.evict = blocks});
  EXPECT_EQ(submitted.down_bytes, rotation().block_bytes());
  EXPECT_EQ(rotation().table().gpu().owned_count(), 1u) << "its slot is kept until it has landed";
  settle();
  for (const BlockId id : blocks) expect_on_host(id, 1);
  EXPECT_EQ(rotation().table().gpu().free_count(), 8u);
}

TEST_F(RotationTest, BudgetsAreKeptByDirection) {
  open({});
  const BlockId equal = synced_block(1);
  std::array<BlockId, 3> down, up;
  for (BlockId& id : up) id = host_only_block(1);
  for (BlockId& id : down) {
    id = sealed_block(1);
    (void)rotation().end_use(id);
  }
  const uint64_t block_bytes = rotation().block_bytes();
  const Submitted submitted = rotation().submit(
      {.evict = down, .load = up}, {.down_bytes = 2 * block_bytes, .up_bytes = block_bytes + 1});
  EXPECT_EQ(submitted.down_bytes, 2 * block_bytes);
  EXPECT_EQ(submitted.up_bytes, block_bytes);
  EXPECT_EQ(submitted.evictions_left, 1u);
  EXPECT_EQ(submitted.loads_left, 2u);
  settle();
  EXPECT_EQ(state(down[2]), BlockState::kSealed);
  (void)rotation().end_use(equal);
  const std::array<BlockId, 2> both{down[2], equal};
  EXPECT_EQ(rotation().submit({.evict = both}, {.down_bytes = 0}).evictions_left, 1u);
  EXPECT_EQ(state(equal), BlockState::kHostOnly) << "it leaves without a copy";
  EXPECT_EQ(state(up[1]), BlockState::kHostOnly);
}

// A slot that the step before still reads is loaded into all the same: behind that step.
TEST_F(RotationTest, ASlotIsUsedAgainBehindTheStepThatReadsIt) {
  open({.slots = {2, 8}});
  const BlockId first = host_only_block(1);
  const BlockId second = synced_block(2);
  (void)synced_block(3);
  read_in_a_step(second, 2);
  (void)rotation().end_use(second);
  const Submitted submitted = rotation().submit({.evict = {&second, 1}, .load = {&first, 1}});
  EXPECT_EQ(submitted.loads_left, 0u);
  EXPECT_EQ(rotation().begin_use(first), Refusal::kNone);
  read_in_a_step(first, 1);
}

// A running step holds back only what comes into its blocks' slots.
TEST_F(RotationTest, ALoadIntoAFreeSlotWaitsForNoStep) {
  open({.slots = {2, 8}});
  const std::array<BlockId, 2> cold{host_only_block(1), host_only_block(2)};
  const BlockId hot = synced_block(3);
  Gate gate(driver());
  gate.hold(compute(0));
  read_in_a_step(hot, 3);
  (void)rotation().end_use(hot);
  const Submitted submitted =
      rotation().submit({.evict = {&hot, 1}, .load = cold, .landing = Landing::kPolled});
  EXPECT_EQ(submitted.loads_left, 0u);
  std::vector<BlockId> loaded;
  while (loaded.empty()) loaded = rotation().poll().loaded;
  EXPECT_EQ(loaded, std::vector{cold[0]});
  gate.open();
  settle();
  EXPECT_EQ(state(cold[1]), BlockState::kSynced);
}

class GroupRotationTest : public RotationTest {
 protected:
  GroupRotationTest() { gpus_needed = 2; }
};

TEST_F(GroupRotationTest, ARankThatFailsFailsItsGroup) {
  open({.ranks = 2});
  const BlockId id = sealed_block(1);
  (void)rotation().end_use(id);
  faults_ = {.every = 2};  // the second rank's
  const Submitted submitted = rotation().submit({.evict = {&id, 1}});
  EXPECT_FALSE(submitted.failure.ok());
  EXPECT_EQ(submitted.down_bytes, 0u);
  EXPECT_EQ(state(id), BlockState::kSealed);
  faults_ = {};
  EXPECT_TRUE(rotation().submit({.evict = {&id, 1}}).failure.ok());
  settle();
  EXPECT_EQ(state(id), BlockState::kHostOnly);
  expect_on_host(id, 1);
  faults_ = {.every = 2};
  EXPECT_FALSE(rotation().submit({.load = {&id, 1}}).failure.ok());
  EXPECT_EQ(state(id), BlockState::kHostOnly);
  EXPECT_EQ(rotation().begin_use(id), Refusal::kWrongState);
}

// Each pool alone would fit.
TEST_F(GroupRotationTest, TheHostNeedsRoomForThePoolsOfAllRanks) {
  open({.ranks = 2});
  const uint64_t pool_bytes = rotation().layout().host_bytes(8);
  const auto opened = [&](uint64_t limit_bytes) {
    const auto cache = std::make_unique<braid::test::DeviceBuffer>(driver(), pool_bytes);
    const RankOptions rank{context(0), cache->at(), compute(0)};
    RotationOptions options{rotation().layout(), {8, 8}, {rank, rank}, limit_bytes};
    return RotationEngine::open(driver(), options, std::make_unique<NativeCopier>(driver()))
        .status();
  };
  EXPECT_TRUE(opened(2 * pool_bytes).ok()) << opened(2 * pool_bytes).message();
  EXPECT_NE(opened(2 * pool_bytes - 1).message().find("2 host pools are to have 64K"),
            std::string::npos)
      << opened(2 * pool_bytes - 1).message();
}

TEST_F(RotationTest, WhatARefusedCopyWouldHaveMovedStaysWhereItIs) {
  using Kind = CopyFaults::Kind;
  open({.slots = {8, 4}});
  for (const Kind kind : {Kind::kRefused, Kind::kHalf, Kind::kEnqueued}) {
    const BlockId id = unused_block(7);
    faults_ = {.kind = kind, .every = 1};
    EXPECT_FALSE(rotation().submit({.evict = {&id, 1}}).failure.ok());
    EXPECT_EQ(state(id), BlockState::kSealed);
    settle();
    EXPECT_EQ(rotation().table().host().owned_count(), 0u);
    EXPECT_EQ(rotation().table().host().fenced_count(), 0u) << "its mark has passed all the same";
    faults_ = {};
    EXPECT_TRUE(rotation().submit({.evict = {&id, 1}}).failure.ok());
    settle();
    faults_ = {.kind = kind, .every = 1};
    EXPECT_FALSE(rotation().submit({.load = {&id, 1}}).failure.ok());
    EXPECT_EQ(state(id), BlockState::kHostOnly);
    faults_ = {};
    load_and_read(id, 7);
    (void)rotation().end_use(id);
    (void)rotation().release(id);
    settle();
  }
}

// The driver records no event behind a batch that it has refused: `poll` makes up for it.
TEST_F(RotationTest, SlotsOfABatchWithoutAnEventComeBack) {
  open({});
  const BlockId id = sealed_block(1);
  (void)rotation().end_use(id);
  checker_.refuse_every(1);
  EXPECT_FALSE(rotation().submit({.evict = {&id, 1}}).failure.ok());
  EXPECT_EQ(rotation().table().host().fenced_count(), 1u);
  checker_.refuse_every(0);
  settle();
  settle();
  EXPECT_EQ(rotation().table().host().fenced_count(), 0u);
}

// It may still land: whoever has its slot next comes behind it, before any `poll`.
TEST_F(RotationTest, ASlotIsTakenBehindALoadWhoseEventWasRefused) {
  open({.slots = {1, 8}});
  const BlockId first = host_only_block(1);
  const BlockId second = host_only_block(2);
  const auto load_without_event = [&](BlockId id) {
    checker_.refuse_every_record(1);
    const Status failure = rotation().submit({.load = {&id, 1}}).failure;
    EXPECT_TRUE(failure.message().find("recording") != std::string::npos) << failure.message();
    EXPECT_EQ(state(id), BlockState::kHostOnly);
    checker_.refuse_every(0);
  };
  load_without_event(first);
  load_and_read(second, 2);
  (void)rotation().end_use(second);
  settle();
  EXPECT_TRUE(rotation().submit({.evict = {&second, 1}}).failure.ok());
  load_without_event(first);
  const BlockId written = sealed_block(3);
  read_in_a_step(written, 3);
  for (const BlockId id : {first, second}) expect_on_host(id, id == first ? 1 : 2);
}

// A copy that failed may still read the block: what is to write it must come behind that copy.
TEST_F(RotationTest, AReopeningThatTheDriverDoesNotOrderFails) {
  open({});
  const BlockId id = sealed_block(1);
  faults_ = {.kind = CopyFaults::Kind::kEnqueued, .every = 1};
  EXPECT_FALSE(rotation().submit({}).failure.ok());
  faults_ = {};
  checker_.refuse_every(1);
  const auto failed = rotation().reopen(id);
  EXPECT_EQ(failed.refusal, Refusal::kNone);
  EXPECT_NE(failed.failure.message().find("ordering a stream"), std::string::npos)
      << failed.failure.message();
  EXPECT_EQ(state(id), BlockState::kSealed);
  checker_.refuse_every(0);
  EXPECT_TRUE(rotation().reopen(id).ok());
  EXPECT_EQ(state(id), BlockState::kDirty);
}

TEST_F(RotationTest, WhatTheHostHasOutlivesTheGpu) {
  open({});
  const BlockId cold = host_only_block(1);
  const BlockId both = synced_block(2);
  const BlockId hot = sealed_block(3);
  checker_.fail_gpu();
  EXPECT_NE(rotation().poll().failure.message().find("rank 0 of the group has failed"),
            std::string::npos);
  EXPECT_EQ(state(cold), BlockState::kHostOnly);
  EXPECT_EQ(state(both), BlockState::kHostOnly);
  EXPECT_EQ(state(hot), BlockState::kLost);
  expect_on_host(cold, 1);
  expect_on_host(both, 2);
  EXPECT_FALSE(rotation().submit({.load = {&cold, 1}}).failure.ok());
  EXPECT_FALSE(rotation().end_step().ok());
  EXPECT_FALSE(rotation().create().ok());
  EXPECT_EQ(rotation().end_use(hot), Refusal::kNone);
  EXPECT_EQ(rotation().release(hot), Refusal::kNone);
}

TEST_F(RotationTest, AGpuThatFailsWhileNoEventIsPendingIsNoticed) {
  open({});
  const BlockId id = synced_block(1);
  EXPECT_TRUE(rotation().poll().failure.ok());
  checker_.fail_gpu();
  EXPECT_EQ(rotation().poll().failure.code(), BRAID_ERROR_CUDA);
  EXPECT_EQ(state(id), BlockState::kHostOnly);
  expect_on_host(id, 1);
}

// The whole batch of the next step would wait for the copy, for nothing.
TEST_F(RotationTest, NoStreamWaitsForACopyWhoseBlockIsNotReopened) {
  open({});
  const BlockId id = sealed_block(1);
  EXPECT_TRUE(rotation().submit({.evict = {&id, 1}}).failure.ok());
  checker_.refuse_every(1);
  const auto reopened = rotation().reopen(id);
  EXPECT_EQ(reopened.refusal, Refusal::kCopying);
  EXPECT_TRUE(reopened.failure.ok()) << "a wait was asked for: " << reopened.failure.message();
  checker_.refuse_every(0);
}

TEST_F(RotationTest, AFullHostPoolKeepsBlocksOnTheGpu) {
  open({.slots = {8, 2}});
  std::array<BlockId, 3> blocks;
  for (BlockId& id : blocks) {
    id = sealed_block(1);
    (void)rotation().end_use(id);
  }
  const Submitted submitted = rotation().submit({.evict = blocks});
  ASSERT_EQ(submitted.refused.size(), 1u);
  EXPECT_EQ(submitted.refused[0].second, Refusal::kNoHostSlot);
  settle();
  EXPECT_EQ(state(blocks[2]), BlockState::kSealed);
  read_in_a_step(blocks[2], 1);
}

TEST_F(RotationTest, WhatAStepWritesIsNotCopiedBeforeTheStepIsEnqueued) {
  open({});
  rotation().begin_step();
  const BlockId id = rotation().create().id;
  write(id, 1);
  (void)rotation().seal(id);
  (void)rotation().end_use(id);
  const Submitted submitted = rotation().submit({.evict = {&id, 1}});
  ASSERT_EQ(submitted.refused.size(), 1u);
  EXPECT_EQ(submitted.refused[0].second, Refusal::kStepNotEnded);
  EXPECT_TRUE(rotation().end_step().ok());
  EXPECT_TRUE(rotation().submit({.evict = {&id, 1}}).refused.empty());
}

// Copies beyond it would overwrite whatever lies there.
TEST_F(RotationTest, ACacheThatLeavesItsAllocationIsRefused) {
  open({});
  const Layout& layout = rotation().layout();
  const auto refusal = [&](CUdeviceptr cache, uint32_t gpu_slots) {
    return RotationEngine::open(driver(),
                                {layout, {gpu_slots, 8}, {{context(0), cache, compute(0)}}},
                                std::make_unique<NativeCopier>(driver()))
        .status()
        .message();
  };
  const braid::test::DeviceBuffer cache(driver(), layout.gpu_bytes(8));
  EXPECT_EQ(refusal(cache.at(), 8), "");
  // Segments lie one behind the other, 8 slots of 1 KiB each: the last one leaves.
  EXPECT_NE(refusal(cache.at(), 9)
                .find("segment 3 of a cache of 9 gpu_slots takes 9216 bytes, beginning 24576 bytes "
                      "behind the cache's address, and 8192 of them are allocated"),
            std::string::npos)
      << refusal(cache.at(), 9);
  EXPECT_NE(refusal(cache.at(1024), 8).find("and 7168 of them"), std::string::npos)
      << refusal(cache.at(1024), 8);
  EXPECT_NE(refusal(1, 8).find("segment 0 of a cache of 8"), std::string::npos) << refusal(1, 8);
}

TEST_F(RotationTest, BadOptionsAreNamed) {
  open({});
  const CUstream stream = new_stream();
  const auto refusal = [&](BlockTable::Slots slots, std::vector<RankOptions> ranks) {
    auto opened = RotationEngine::open(driver(), {rotation().layout(), slots, std::move(ranks)},
                                       std::make_unique<NativeCopier>(driver()));
    return opened.status().message();
  };
  EXPECT_NE(refusal({8, 8}, {}).find("without a rank"), std::string::npos);
  EXPECT_NE(refusal({8, 0}, {{context(0), 1, stream}}).find("host_slots"), std::string::npos);
  EXPECT_NE(refusal({8, 8}, {{context(0), 1, nullptr}}).find("legacy"), std::string::npos);
  EXPECT_NE(refusal({8, 8}, {{context(0), 1, CU_STREAM_PER_THREAD}}).find("per-thread"),
            std::string::npos);
  EXPECT_NE(refusal({8, ~0u}, {{context(0), 1, stream}}).find("the host has"), std::string::npos)
      << "16 TB";
}

}  // namespace
}  // namespace braid::kv::test
