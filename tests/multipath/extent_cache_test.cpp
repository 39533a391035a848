// Which piece of memory an address lies in, as far as has been told.
#include "multipath/extent_cache.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

namespace braid::multipath {
namespace {

constexpr size_t kSize = 4096;

// Pieces with gaps between them.
Extent piece(size_t number) { return {0x10000 + number * 2 * kSize, kSize, number % 2 != 0}; }

void expect_known(ExtentCache& known, size_t number) {
  const Extent wanted = piece(number);
  for (const CUdeviceptr address : {wanted.begin, wanted.end() - 1}) {
    const Extent* found = known.find(address);
    ASSERT_NE(found, nullptr) << number;
    EXPECT_EQ(found->begin, wanted.begin);
    EXPECT_EQ(found->size_bytes, wanted.size_bytes);
    EXPECT_EQ(found->is_mapping, wanted.is_mapping);
  }
}

TEST(ExtentCache, NothingIsKnownAtFirst) {
  ExtentCache known;
  EXPECT_EQ(known.find(0), nullptr);
  EXPECT_EQ(known.find(piece(0).begin), nullptr);
}

TEST(ExtentCache, WhatWasToldIsKnownAndNothingBesideIt) {
  const uint64_t seed = ::testing::UnitTest::GetInstance()->random_seed();
  std::mt19937_64 random(seed);
  ExtentCache known;
  std::vector<bool> told(2 * ExtentCache::kMost);
  size_t count = 0;
  for (int turn = 0; turn < 100'000; ++turn) {
    const size_t number = random() % told.size();
    if (told[number]) {
      expect_known(known, number);
    } else {
      ASSERT_EQ(known.find(piece(number).begin), nullptr) << "seed " << seed;
      ASSERT_EQ(known.find(piece(number).end() - 1), nullptr) << "seed " << seed;
      if (count == ExtentCache::kMost) continue;
      known.add(piece(number));
      told[number] = true;
      ++count;
    }
    ASSERT_EQ(known.find(piece(number).end()), nullptr) << "seed " << seed;
    ASSERT_EQ(known.find(piece(number).begin - 1), nullptr) << "seed " << seed;
  }
  EXPECT_EQ(count, ExtentCache::kMost);
}

// With no room for another, a run of segments in it costs one question all the same.
TEST(ExtentCache, TheLastOneIsKnownWhenThereIsNoRoomForIt) {
  ExtentCache known;
  for (size_t number = 0; number <= ExtentCache::kMost; ++number) known.add(piece(number));
  expect_known(known, ExtentCache::kMost);
  for (size_t number = 0; number < ExtentCache::kMost; ++number) expect_known(known, number);
}

}  // namespace
}  // namespace braid::multipath
