// Seeds of random tests replay what they have found as long as these numbers stay.
#include "base/split_mix.h"

#include <gtest/gtest.h>

namespace braid {
namespace {

// The numbers that Vigna's splitmix64.c makes of this seed.
TEST(SplitMix, IsWhatItsAuthorsPublished) {
  SplitMix numbers(1234567);
  for (const uint64_t number : {6457827717110365317u, 3203168211198807973u, 9817491932198370423u,
                                4593380528125082431u, 16408922859458223821u})
    EXPECT_EQ(numbers.next(), number);
}

TEST(SplitMix, AnyNumberByItselfIsThatOfTheSequence) {
  constexpr uint64_t kSeed = 42;
  SplitMix numbers(kSeed);
  for (uint64_t count = 1; count <= 100; ++count)
    EXPECT_EQ(numbers.next(), split_mix(kSeed + count * kSplitMixStep));
}

TEST(SplitMix, UnitsAreBelowOne) {
  SplitMix numbers(1);
  for (int count = 0; count < 1000; ++count) {
    const double unit = numbers.unit();
    EXPECT_GE(unit, 0);
    EXPECT_LT(unit, 1);
  }
}

}  // namespace
}  // namespace braid
