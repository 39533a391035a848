// What a plan becomes: batches, and the copies in them.
#include <array>
#include <numeric>

#include "kv/rig.h"
#include "kv/rotation_engine.h"

namespace braid::kv::test {
namespace {

using BatchesTest = KvTest;

struct Listed {
  CUstream stream;
  std::vector<uint64_t> sizes_bytes;
};

// Notes how large the copies of each batch are, and in which stream.
class ListingCopier final : public Copier {
 public:
  ListingCopier(const cuda::Driver& driver, std::vector<Listed>& batches)
      : inner_(driver), batches_(batches) {}
  Status copy(std::span<const library::Copy> copies, CUstream stream, Urgency urgency) override {
    batches_.push_back({stream, {}});
    for (const library::Copy& copy : copies) batches_.back().sizes_bytes.push_back(copy.size_bytes);
    return inner_.copy(copies, stream, urgency);
  }

 private:
  NativeCopier inner_;
  std::vector<Listed>& batches_;  // the test's
};

// A batch costs its caller by entries: blocks that lie beside each other on both sides are one.
TEST_F(BatchesTest, NeighboursAreOneCopy) {
  std::vector<Listed> batches;
  open({.order = GpuOrder::kBlockFirst,
        .copier = [&] { return std::make_unique<ListingCopier>(driver(), batches); }});
  std::array<BlockId, 5> blocks;
  for (BlockId& id : blocks) {
    id = sealed_block(6);
    (void)rotation().end_use(id);
  }
  const uint64_t block_bytes = rotation().block_bytes();
  // Slots 0, 1 and 2, 4, 3 of the GPU go to slots 0 to 4 of the host.
  const std::array leaving{blocks[0], blocks[1], blocks[2], blocks[4], blocks[3]};
  EXPECT_TRUE(rotation().submit({.evict = leaving}).failure.ok());
  settle();
  for (const BlockId id : blocks) expect_on_host(id, 6);
  // Slots 0 and 1, 2, 4 of the host come into slots 0 to 3 of the GPU.
  const std::array coming{blocks[0], blocks[1], blocks[2], blocks[3]};
  EXPECT_TRUE(rotation().submit({.load = coming}).failure.ok());
  for (const BlockId id : coming) EXPECT_EQ(rotation().begin_use(id), Refusal::kNone);
  read_in_a_step(coming, 6);
  settle();
  ASSERT_EQ(batches.size(), 2u);
  EXPECT_EQ(batches[0].sizes_bytes,
            (std::vector<uint64_t>{3 * block_bytes, block_bytes, block_bytes}));
  EXPECT_EQ(batches[1].sizes_bytes, (std::vector<uint64_t>{3 * block_bytes, block_bytes}));
}

// The first blocks travel while the caller lists the others. What becomes of a part is told of its
// blocks alone.
TEST_F(BatchesTest, ALargePlanGoesInParts) {
  constexpr size_t kBlocks = 80, kFirstPart = 64;  // of 512 KiB, in 512 segments
  std::vector<Listed> batches;
  open({.slots = {kBlocks, kBlocks}, .layers = 512, .copier = [&] {
          return std::make_unique<ListingCopier>(driver(), batches);
        }});
  std::array<BlockId, kBlocks> blocks;
  for (BlockId& id : blocks) {
    id = sealed_block(6);
    (void)rotation().end_use(id);
  }
  EXPECT_TRUE(rotation().submit({.evict = blocks}).failure.ok());
  EXPECT_EQ(batches.size(), 2u);
  settle();
  for (const BlockId id : blocks) {
    EXPECT_EQ(state(id), BlockState::kHostOnly);
    expect_on_host(id, 6);
  }
  faults_.every = 2;  // the second part
  const Submitted refused = rotation().submit({.load = blocks});
  EXPECT_FALSE(refused.failure.ok());
  EXPECT_EQ(refused.up_bytes, kFirstPart * rotation().block_bytes());
  settle();
  for (size_t i = 0; i < kBlocks; ++i)
    EXPECT_EQ(state(blocks[i]), i < kFirstPart ? BlockState::kSynced : BlockState::kHostOnly) << i;
  faults_.every = 0;
  EXPECT_TRUE(rotation().submit({.load = blocks}).failure.ok());
  for (const BlockId id : blocks) EXPECT_EQ(rotation().begin_use(id), Refusal::kNone);
  read_in_a_step(blocks, 6);
  settle();
}

// Copies of a kilobyte land about as soon as others are listed.
TEST_F(BatchesTest, PartsOfSmallCopiesGrowSlowly) {
  constexpr size_t kBlocks = 200;  // of 512 KiB, in 512 segments
  std::vector<Listed> batches;
  open({.slots = {kBlocks, kBlocks}, .layers = 512, .copier = [&] {
          return std::make_unique<ListingCopier>(driver(), batches);
        }});
  std::array<BlockId, kBlocks> blocks;
  for (BlockId& id : blocks) id = unused_block(6);
  EXPECT_TRUE(rotation().submit({.evict = blocks}).failure.ok());
  std::vector<uint64_t> blocks_of_parts;
  for (const Listed& batch : batches)
    blocks_of_parts.push_back(
        std::accumulate(batch.sizes_bytes.begin(), batch.sizes_bytes.end(), uint64_t{0}) /
        rotation().block_bytes());
  EXPECT_EQ(blocks_of_parts, (std::vector<uint64_t>{64, 128, 8}));
  settle();
}

// Of 80 blocks of 512 segments, the first part has 64.
class PartsBothWaysTest : public BatchesTest {
 protected:
  static constexpr uint32_t kBlocks = 80;
  static constexpr uint32_t kCopied = 70;

  // Half of the blocks is on the host. The others, which nobody uses any more, are on the GPU; of
  // these, the last ones of the plan have a copy on the host already.
  void prepare(uint32_t gpu_slots) {
    open({.slots = {gpu_slots, 2 * kBlocks}, .layers = 512, .copier = [&] {
            return std::make_unique<ListingCopier>(driver(), batches_);
          }});
    for (BlockId& id : coming_) id = unused_block(6);
    EXPECT_TRUE(rotation().submit({.evict = coming_}).failure.ok());
    settle();
    for (size_t i = kCopied; i < kBlocks; ++i) leaving_[i] = unused_block(7);
    EXPECT_TRUE(rotation().submit({}).failure.ok());
    settle();
    for (size_t i = 0; i < kCopied; ++i) leaving_[i] = unused_block(7);
    batches_.clear();
  }

  void expect_exchanged() {
    for (const BlockId id : coming_) EXPECT_EQ(rotation().begin_use(id), Refusal::kNone);
    read_in_a_step(coming_, 6);
    settle();
    for (const BlockId id : leaving_) expect_on_host(id, 7);
  }

  std::vector<Listed> batches_;
  std::array<BlockId, kBlocks> coming_;
  std::array<BlockId, kBlocks> leaving_;
};

// Neither direction of the links waits until the other one's blocks are listed.
TEST_F(PartsBothWaysTest, EachDirectionBeginsWithItsFirstPart) {
  prepare(2 * kBlocks);
  const Submitted submitted = rotation().submit({.evict = leaving_, .load = coming_});
  EXPECT_TRUE(submitted.failure.ok()) << submitted.failure.message();
  EXPECT_EQ(submitted.loads_left, 0u);
  ASSERT_EQ(batches_.size(), 4u);
  EXPECT_EQ(batches_[0].stream, batches_[2].stream);
  EXPECT_EQ(batches_[1].stream, batches_[3].stream);
  EXPECT_NE(batches_[0].stream, batches_[1].stream);
  expect_exchanged();
}

// The last evictions free their slots at once, and they too are taken.
TEST_F(PartsBothWaysTest, LoadsTakeTheSlotsOfEveryEviction) {
  constexpr uint32_t kFree = 1, kFreed = kBlocks - kCopied;
  prepare(kBlocks + kFree);
  const Submitted submitted = rotation().submit({.evict = leaving_, .load = coming_});
  EXPECT_TRUE(submitted.failure.ok()) << submitted.failure.message();
  EXPECT_EQ(submitted.loads_left, kBlocks - kFree - kFreed);
  settle();
  EXPECT_EQ(rotation().submit({.load = coming_}).loads_left, 0u);
  expect_exchanged();
}

}  // namespace
}  // namespace braid::kv::test
