#include "base/median.h"

#include <gtest/gtest.h>

namespace braid {
namespace {

TEST(MedianTest, IsTheMiddleValueOrTheMeanOfTheTwoInTheMiddle) {
  EXPECT_EQ(median({3, 1, 2}), 2);
  EXPECT_EQ(median({8, 1, 2, 4}), 3);
  EXPECT_EQ(median({}), 0);
}

}  // namespace
}  // namespace braid
