// What a plan becomes: batches, and the copies in them.
#include <array>

#include "kv/rig.h"
#include "kv/rotation_engine.h"

namespace braid::kv::test {
namespace {

using BatchesTest = KvTest;

// Notes how large the copies of each batch are.
class ListingCopier final : public Copier {
 public:
  ListingCopier(const cuda::Driver& driver, std::vector<std::vector<uint64_t>>& sizes_bytes)
      : inner_(driver), sizes_bytes_(sizes_bytes) {}
  Status copy(std::span<const library::Copy> copies, CUstream stream, Urgency urgency) override {
    sizes_bytes_.emplace_back();
    for (const library::Copy& copy : copies) sizes_bytes_.back().push_back(copy.size_bytes);
    return inner_.copy(copies, stream, urgency);
  }

 private:
  NativeCopier inner_;
  std::vector<std::vector<uint64_t>>& sizes_bytes_;  // the test's
};

// A batch costs its caller by entries: blocks that lie beside each other on both sides are one.
TEST_F(BatchesTest, NeighboursAreOneCopy) {
  std::vector<std::vector<uint64_t>> batches;
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
  const std::vector<std::vector<uint64_t>> expected = {{3 * block_bytes, block_bytes, block_bytes},
                                                       {3 * block_bytes, block_bytes}};
  EXPECT_EQ(batches, expected);
}

// The first blocks travel while the caller lists the others. What becomes of a part is told of its
// blocks alone.
TEST_F(BatchesTest, ALargePlanGoesInParts) {
  constexpr size_t kBlocks = 80, kFirstPart = 64;  // of 512 KiB, in 512 segments
  std::vector<std::vector<uint64_t>> batches;
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

}  // namespace
}  // namespace braid::kv::test
