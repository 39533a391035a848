#include "fabric/policy/number_ranges.h"

#include <gtest/gtest.h>

#include <random>
#include <set>

namespace braid::fabric {
namespace {

TEST(NumberRanges, HoldWhatASetWouldHoldInAnyOrder) {
  const unsigned seed = std::random_device()();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  NumberRanges ranges;
  std::set<uint64_t> expected;
  for (int i = 0; i < 20'000; ++i) {
    const uint64_t number = random() % 300;
    if (random() % 100 == 0) {
      ranges.erase_below(number);
      expected.erase(expected.begin(), expected.lower_bound(number));
    } else {
      ranges.add(number);
      expected.insert(number);
    }
    const uint64_t other = random() % 301;
    ASSERT_EQ(ranges.contains(other), expected.contains(other)) << other;
    size_t runs = 0;
    for (const uint64_t each : expected) runs += !expected.contains(each + 1);
    ASSERT_EQ(ranges.range_count(), runs);
  }
}

TEST(NumberRanges, TheHighestNumberHasNoneAfterIt) {
  NumberRanges ranges;
  ranges.add(~uint64_t{0});
  ranges.add(0);
  ranges.add(~uint64_t{0} - 1);
  EXPECT_TRUE(ranges.contains(~uint64_t{0}));
  EXPECT_EQ(ranges.range_count(), 2u);
}

}  // namespace
}  // namespace braid::fabric
