#include "multipath/slice_size.h"

#include <gtest/gtest.h>

namespace braid::multipath {
namespace {

TEST(SliceBytes, IsTheDefaultUnlessAsked) {
  EXPECT_EQ(slice_bytes_for(1 << 30, 0), kDefaultSliceBytes);
  EXPECT_EQ(slice_bytes_for(1 << 30, 256 << 10), 256u << 10);
}

TEST(SliceBytes, IsAlwaysWholeVectors) {
  EXPECT_EQ(slice_bytes_for(1000, 1), 16u);
  EXPECT_EQ(slice_bytes_for(1000, 100), 112u);
}

TEST(SliceBytes, KeepsSliceNumbersSmallForHugeTransfers) {
  const uint64_t terabyte = uint64_t{1} << 40;
  const uint32_t slice_bytes = slice_bytes_for(4 * terabyte, 0);
  EXPECT_EQ(slice_bytes % 16, 0u);
  EXPECT_LE(4 * terabyte / slice_bytes, uint64_t{1} << 25);
}

}  // namespace
}  // namespace braid::multipath
