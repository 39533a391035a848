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
  EXPECT_TRUE(cut(Slicer(0, {}, {})).empty());
  EXPECT_EQ(cut(Slicer(1, {}, {})), (std::vector<Span>{{0, 1}}));
  EXPECT_EQ(cut(Slicer(65536, {}, {})), (std::vector<Span>{{0, 65536}}));
}

TEST(Slicer, LargerRequestsHaveLargerSlicesAndNotMoreUntilTheyAreAsLargeAsSlicesMayBe) {
  EXPECT_EQ(cut(Slicer(1 << 20, {}, {})).size(), 16u);
  EXPECT_EQ(cut(Slicer(64 << 20, {}, {})).size(), 64u);
  EXPECT_EQ(cut(Slicer(uint64_t{1} << 30, {}, {})).size(), 64u);
  EXPECT_EQ(cut(Slicer(uint64_t{64} << 30, {}, {})).size(), 4096u);
}

TEST(Slicer, AShortRestGoesWithTheSliceBeforeIt) {
  EXPECT_EQ(cut(Slicer(65536 + 100, {}, {})), (std::vector<Span>{{0, 65636}}));
}

TEST(Slicer, EveryByteIsCutOnceAndNoSliceCrossesABorder) {
  EXPECT_TRUE(rc::check("slices cover the request in order", [] {
    const uint64_t size = *rc::gen::inRange<uint64_t>(0, uint64_t{1} << 26);
    const SliceRules rules{*rc::gen::inRange<uint64_t>(1, 1 << 18),
                           *rc::gen::inRange<uint64_t>(1, 100),
                           *rc::gen::inRange<uint64_t>(1, 1 << 20)};
    Borders borders;
    borders.alignment_bytes = uint64_t{1} << *rc::gen::inRange(0, 13);
    borders.at =
        *rc::gen::container<std::vector<uint64_t>>(rc::gen::inRange<uint64_t>(0, size + 1));
    std::sort(borders.at.begin(), borders.at.end());
    const uint64_t bytes_max = *rc::gen::inRange<uint64_t>(rules.slice_bytes_min, 1 << 24);
    const std::vector<Span> slices = cut(Slicer(size, borders, rules), bytes_max);
    uint64_t at = 0;
    for (const Span& slice : slices) {
      RC_ASSERT(slice.offset == at);
      RC_ASSERT(slice.size_bytes > 0);
      for (const uint64_t border : borders.at)
        RC_ASSERT(border <= at || border >= at + slice.size_bytes);
      at += slice.size_bytes;
    }
    RC_ASSERT(at == size);
  }));
}

TEST(Slicer, AlignedRequestsHaveAlignedSlices) {
  EXPECT_TRUE(rc::check("all slices but the last are multiples of the alignment", [] {
    const uint64_t size = *rc::gen::inRange<uint64_t>(1, uint64_t{1} << 32);
    Borders borders;
    borders.alignment_bytes = 4096;
    const std::vector<Span> slices = cut(Slicer(size, borders, {}));
    RC_ASSERT(slices.size() <= std::max<uint64_t>(64, size / SliceRules{}.slice_bytes_max + 1));
    for (size_t i = 0; i + 1 < slices.size(); ++i) RC_ASSERT(slices[i].size_bytes % 4096 == 0u);
  }));
}

}  // namespace
}  // namespace braid::transfer
