// How requests are cut.
#include "transfer/policy/slicer.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>

namespace braid::transfer {
namespace {

std::vector<Span> cut(Slicer slicer, uint64_t bytes_max = UINT64_MAX) {
  std::vector<Span> slices;
  while (!slicer.is_at_end()) {
    slices.push_back(slicer.peek(bytes_max));
    slicer.take(slices.back());
  }
  return slices;
}

TEST(Slicer, SmallRequestsAreOneSliceAndNoBytesAreNone) {
  EXPECT_TRUE(cut(Slicer(0, 1, {})).empty());
  EXPECT_EQ(cut(Slicer(1, 1, {})), (std::vector<Span>{{0, 1}}));
  EXPECT_EQ(cut(Slicer(65536, 1, {})), (std::vector<Span>{{0, 65536}}));
}

TEST(Slicer, LargerRequestsHaveLargerSlicesAndNotMoreUntilTheyAreAsLargeAsSlicesMayBe) {
  EXPECT_EQ(cut(Slicer(1 << 20, 1, {})).size(), 16u);
  EXPECT_EQ(cut(Slicer(64 << 20, 1, {})).size(), 64u);
  EXPECT_EQ(cut(Slicer(uint64_t{1} << 30, 1, {})).size(), 64u);
  EXPECT_EQ(cut(Slicer(uint64_t{64} << 30, 1, {})).size(), 4096u);
}

TEST(Slicer, AShortRestGoesWithTheSliceBeforeIt) {
  EXPECT_EQ(cut(Slicer(65536 + 100, 1, {})), (std::vector<Span>{{0, 65636}}));
}

TEST(Slicer, EveryByteIsCutOnce) {
  EXPECT_TRUE(rc::check("slices cover the request in order", [] {
    const uint64_t size = *rc::gen::inRange<uint64_t>(0, uint64_t{1} << 26);
    const SliceRules rules{*rc::gen::inRange<uint64_t>(1, 1 << 18),
                           *rc::gen::inRange<uint64_t>(1, 100),
                           *rc::gen::inRange<uint64_t>(1, 1 << 20)};
    const uint64_t alignment = uint64_t{1} << *rc::gen::inRange(0, 13);
    const uint64_t bytes_max = *rc::gen::inRange<uint64_t>(rules.slice_bytes_min, 1 << 24);
    const std::vector<Span> slices = cut(Slicer(size, alignment, rules), bytes_max);
    uint64_t at = 0;
    for (const Span& slice : slices) {
      RC_ASSERT(slice.offset == at);
      RC_ASSERT(slice.size_bytes > 0);
      RC_ASSERT(slice.offset % alignment == 0u);
      at += slice.size_bytes;
    }
    RC_ASSERT(at == size);
  }));
}

TEST(Slicer, AlignedRequestsHaveAlignedSlices) {
  EXPECT_TRUE(rc::check("all slices but the last are multiples of the alignment", [] {
    const uint64_t size = *rc::gen::inRange<uint64_t>(1, uint64_t{1} << 32);
    const std::vector<Span> slices = cut(Slicer(size, 4096, {}));
    RC_ASSERT(slices.size() <= std::max<uint64_t>(64, size / SliceRules{}.slice_bytes_max + 1));
    for (size_t i = 0; i + 1 < slices.size(); ++i) RC_ASSERT(slices[i].size_bytes % 4096 == 0u);
  }));
}

}  // namespace
}  // namespace braid::transfer
