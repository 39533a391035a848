// How segments become slices: every byte in exactly one piece, and never more lists than promised.
#include "multipath/slice_lists.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <span>
#include <vector>

namespace braid::multipath {
namespace {

using cuda::SliceList;

Segment segment(uint64_t host, uint64_t device, uint64_t size_bytes) {
  return {reinterpret_cast<void*>(host), device, size_bytes};
}

std::vector<SliceList> fill(const std::vector<Segment>& segments, uint32_t slice_bytes,
                            SliceLists* filled = nullptr) {
  const Batch batch{Direction::kHostToDevice, segments, nullptr};
  std::vector<SliceList> lists(slice_list_bound(segments.size(), size_of(batch), slice_bytes));
  const SliceLists result = fill_slice_lists(batch, slice_bytes, lists);
  EXPECT_LE(result.count, lists.size());
  lists.resize(result.count);
  if (filled != nullptr) *filled = result;
  return lists;
}

TEST(SliceLists, EveryByteIsInOnePieceWhateverTheSizes) {
  const auto seed = static_cast<uint64_t>(::testing::UnitTest::GetInstance()->random_seed());
  std::mt19937_64 random(seed);
  for (int round = 0; round < 500; ++round) {
    SCOPED_TRACE(::testing::Message() << "seed " << seed << ", round " << round);
    const uint32_t slice_bytes = 16u << (random() % 14);
    std::vector<Segment> segments;
    std::map<uint64_t, std::pair<uint64_t, uint64_t>> expected;  // destination -> source, size
    uint64_t host = 1000, device = 1u << 30;
    for (uint64_t i = 0, count = 1 + random() % 60; i < count; ++i) {
      const uint64_t size = 1 + random() % (uint64_t{1} << (random() % 20));
      segments.push_back(segment(host, device, size));
      expected[device] = {host, size};
      host += size + random() % 3;
      device += size + random() % 3;
    }
    std::map<uint64_t, std::pair<uint64_t, uint64_t>> pieces;
    for (const SliceList& list : fill(segments, slice_bytes)) {
      uint64_t sum = 0;
      ASSERT_GT(list.piece_count, 0u);
      ASSERT_LE(list.piece_count, cuda::kPiecesPerSlice);
      for (const cuda::SlicePiece& piece : std::span(list.pieces).first(list.piece_count)) {
        ASSERT_TRUE(pieces.try_emplace(piece.destination, piece.source, piece.size_bytes).second);
        sum += piece.size_bytes;
      }
      ASSERT_EQ(sum, list.size_bytes);
      ASSERT_LE(sum, slice_bytes);
    }
    for (const auto& [to, what] : expected)
      for (uint64_t at = 0; at < what.second;) {
        // Neighbours may have been joined: the piece that holds this byte may begin before it.
        auto piece = pieces.upper_bound(to + at);
        ASSERT_NE(piece, pieces.begin());
        --piece;
        const uint64_t into = to + at - piece->first;
        ASSERT_LT(into, piece->second.second);
        ASSERT_EQ(piece->second.first + into, what.first + at);
        at += piece->second.second - into;
      }
  }
}

TEST(SliceLists, SmallSegmentsShareASliceAndLargeOnesAreCut) {
  std::vector<Segment> small;
  for (uint64_t i = 0; i < 16; ++i) small.push_back(segment(i * 16384, i * 32768, 8192));
  EXPECT_EQ(fill(small, 65536).size(), 2u);
  EXPECT_EQ(fill({segment(0, 0, 1 << 20), segment(4 << 20, 8 << 20, 1 << 20)}, 65536).size(), 32u);
}

TEST(SliceLists, NeighboursAreJoined) {
  std::vector<Segment> row;
  for (uint64_t i = 0; i < 64; ++i) row.push_back(segment(4096 + i * 512, 8192 + i * 512, 512));
  const auto lists = fill(row, 65536);
  ASSERT_EQ(lists.size(), 1u);
  EXPECT_EQ(lists[0].piece_count, 1u);
  EXPECT_EQ(lists[0].pieces[0].size_bytes, 64u * 512);
}

TEST(SliceLists, SayWhetherTheBulkKernelWillDo) {
  SliceLists filled;
  fill({segment(3, 19, 100), segment(1000, 2024, 100)}, 65536, &filled);
  EXPECT_TRUE(filled.aligned_alike);
  fill({segment(3, 19, 100), segment(1000, 2025, 100)}, 65536, &filled);
  EXPECT_FALSE(filled.aligned_alike);
}

}  // namespace
}  // namespace braid::multipath
