#include "multipath/selector.h"

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

TEST(PathCount, IsOneForATransferThatEndsBeforeARelayCouldStart) {
  EXPECT_EQ(path_count_for(64 << 10, 8), 1);
}

TEST(PathCount, GrowsWithSizeUpToWhatThereIs) {
  int last = 1;
  for (uint64_t size = 64 << 10; size <= 1 << 30; size *= 2) {
    const int paths = path_count_for(size, 8);
    EXPECT_GE(paths, last);
    EXPECT_LE(paths, 8);
    last = paths;
  }
  EXPECT_EQ(last, 8);
  EXPECT_EQ(path_count_for(1 << 30, 1), 1);
}

// Every relay that is launched starts before the transfer would have ended without it.
TEST(PathCount, NeverTakesARelayThatWouldComeTooLate) {
  constexpr double kBytesPerUs = 51.4e3;
  constexpr double kLaunchUs = 4.5;
  for (uint64_t size = 1 << 20; size <= 64 << 20; size += 1 << 20) {
    const int paths = path_count_for(size, 16);
    double starts_us = 0;
    for (int path = 1; path < paths; ++path) {
      const double end_us = (static_cast<double>(size) / kBytesPerUs + starts_us) / path;
      EXPECT_LT(path * kLaunchUs, end_us) << size;
      starts_us += path * kLaunchUs;
    }
  }
}

}  // namespace
}  // namespace braid::multipath
