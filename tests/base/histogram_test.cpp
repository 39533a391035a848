#include "base/histogram.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <thread>
#include <vector>

namespace braid {
namespace {

TEST(Histogram, EmptySaysNothing) {
  const Histogram histogram;
  EXPECT_EQ(histogram.count(), 0u);
  EXPECT_EQ(histogram.quantile(500), 0u);
  EXPECT_EQ(histogram.max(), 0u);
}

TEST(Histogram, SmallValuesAreExact) {
  Histogram histogram;
  for (uint64_t value = 0; value < 32; ++value) histogram.add(value);
  EXPECT_EQ(histogram.quantile(500), 15u);
  EXPECT_EQ(histogram.quantile(1000), 31u);
  EXPECT_EQ(histogram.sum(), 31u * 32 / 2);
}

TEST(Histogram, OneValueIsEveryQuantile) {
  Histogram histogram;
  histogram.add(123'456'789);
  for (const unsigned per_mille : {0u, 1u, 500u, 999u, 1000u})
    EXPECT_EQ(histogram.quantile(per_mille), 123'456'789u) << per_mille;
}

TEST(Histogram, QuantilesAreAtMostABucketAboveTheTruth) {
  for (const unsigned seed : {1u, 2u, 3u}) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    std::vector<uint64_t> values;
    Histogram histogram;
    for (int i = 0; i < 20'000; ++i) {
      const unsigned shift = 24 + static_cast<unsigned>(random() % 40);  // as many of each size
      values.push_back(random() >> shift);
      histogram.add(values.back());
    }
    std::sort(values.begin(), values.end());
    for (const unsigned per_mille : {1u, 10u, 500u, 900u, 990u, 999u, 1000u}) {
      const uint64_t truth = values[values.size() * per_mille / 1000 - 1];
      EXPECT_GE(histogram.quantile(per_mille), truth) << per_mille;
      EXPECT_LE(histogram.quantile(per_mille), truth + truth / 32) << per_mille;
    }
    EXPECT_EQ(histogram.max(), values.back());
    EXPECT_EQ(histogram.count(), values.size());
  }
}

TEST(Histogram, ValuesBeyondItsRangeAreNotLost) {
  Histogram histogram;
  histogram.add(UINT64_MAX);
  EXPECT_EQ(histogram.count(), 1u);
  EXPECT_EQ(histogram.max(), UINT64_MAX);
  EXPECT_EQ(histogram.quantile(500), (uint64_t{1} << 40) - 1);
}

TEST(Histogram, ClearedIsEmpty) {
  Histogram histogram;
  histogram.add(7);
  histogram.clear();
  EXPECT_EQ(histogram.count() + histogram.sum() + histogram.max(), 0u);
}

TEST(Histogram, ThreadsLoseNothing) {
  Histogram histogram;
  std::vector<std::thread> threads;
  for (uint64_t thread = 1; thread <= 4; ++thread)
    threads.emplace_back([&histogram, thread] {
      for (int i = 0; i < 10'000; ++i) histogram.add(thread * 1000);
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(histogram.count(), 40'000u);
  EXPECT_EQ(histogram.sum(), 100'000'000u);
  EXPECT_EQ(histogram.max(), 4000u);
}

}  // namespace
}  // namespace braid
