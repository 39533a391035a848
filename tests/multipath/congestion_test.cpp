// When a relay's block takes its link for congested, and for how long it rests, without a server.
#include "cuda/kernels/congestion.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <set>

#include "cuda/kernels/pull.h"

namespace braid::cuda {
namespace {

constexpr uint32_t kSliceKb = 64;
constexpr uint64_t kSliceNs = 2500;  // of one of two blocks on a link of 52 GB/s

class CongestionTest : public ::testing::Test {
 protected:
  // One block moves slices, of which each takes `slice_ns`, until a rest is asked for. Beside them
  // the link moves `beside` as many of braid's, and `back` as many the other way.
  uint64_t move(int slices, uint64_t slice_ns, uint32_t beside = 1, uint32_t back = 0) {
    for (int i = 0; i < slices; ++i) {
      now_ns += slice_ns;
      moved.this_way += kSliceKb * (1 + beside);
      moved.other_way += kSliceKb * (1 + beside) * back;
      LinkSample sample{};
      if (!watch.count_slice() || !watch.sample(now_ns, moved, sample)) continue;
      UsualPace& pace = usual[sample.is_both_ways];
      const uint64_t rest_ns = watch.rest_ns(pace, sample);
      pace = learned(pace, sample);
      if (rest_ns != 0) return rest_ns;
    }
    return 0;
  }
  void learn() { EXPECT_EQ(move(kKnown, kSliceNs), 0u); }
  // As blocks do that have been told to.
  void rest(uint64_t rest_ns) {
    now_ns += rest_ns;
    watch.restart();
  }

  static constexpr int kKnown = kSampleSlices * (kSamplesToKnow + 1);
  static constexpr int kMany = 10'000;
  uint64_t now_ns = 1'000'000;
  MovedKb moved{~uint32_t{0} - 1000, 0};  // wraps soon
  UsualPace usual[2]{};                   // one way, both ways
  LinkWatch watch{0};
};

TEST_F(CongestionTest, ALinkThatSharesWithAnotherStreamRestsSoonAndNotForLong) {
  learn();
  const uint64_t before_ns = now_ns;
  const uint64_t rest_ns = move(kMany, 2 * kSliceNs);
  EXPECT_GT(rest_ns, 0u);
  EXPECT_LE(rest_ns, kMostRestNs);
  EXPECT_LE(now_ns - before_ns, (kSamplesToRest + 1) * kSampleSlices * 2 * kSliceNs);
}

TEST_F(CongestionTest, WhatSharedHostMemoryCostsIsNoCongestion) {
  learn();
  EXPECT_EQ(move(kMany, kSliceNs * 145 / 100), 0u);
}

TEST_F(CongestionTest, BraidsOtherTransfersOnTheLinkAreNoCongestion) {
  learn();
  EXPECT_EQ(move(kMany, 4 * kSliceNs, 7), 0u) << "four times the blocks, each a fourth as fast";
}

TEST_F(CongestionTest, TheOtherDirectionIsNoCongestion) {
  learn();
  EXPECT_EQ(move(kMany, 2 * kSliceNs, 1, 1), 0u);
  EXPECT_EQ(move(kMany, kSliceNs), 0u);
  EXPECT_GT(move(kMany, 4 * kSliceNs, 1, 1), 0u) << "but has a pace of its own";
}

TEST_F(CongestionTest, OneLateSampleIsNoCongestion) {
  learn();
  for (int i = 0; i < 100; ++i) {
    now_ns += 2'000'000;  // the GPU did something else
    EXPECT_EQ(move(4 * kSampleSlices, kSliceNs), 0u);
  }
}

TEST_F(CongestionTest, NothingIsUnusualWhileLittleIsKnown) {
  EXPECT_EQ(move(kKnown / 2, kSliceNs), 0u);
  EXPECT_EQ(move(kKnown / 4, 3 * kSliceNs), 0u);
}

TEST_F(CongestionTest, AfterARestOneLookDecides) {
  learn();
  rest(move(kMany, 2 * kSliceNs));
  const uint64_t before_ns = now_ns;
  rest(move(kMany, 2 * kSliceNs));
  EXPECT_GT(now_ns - before_ns, 4 * kSampleSlices * kSliceNs) << "it works in between";
  EXPECT_GT(move(2 * kSampleSlices, 2 * kSliceNs), 0u) << "still congested";
  rest(kMostRestNs);
  EXPECT_EQ(move(3 * kSampleSlices, kSliceNs), 0u) << "free again";
  EXPECT_EQ(move(2 * kSampleSlices, 2 * kSliceNs), 0u) << "as if it had never been slow";
}

TEST_F(CongestionTest, AFillingPipelineSaysNothing) {
  learn();
  for (int i = 0; i < 100; ++i) {
    rest(1000);
    EXPECT_EQ(move(kSampleSlices, 10 * kSliceNs), 0u);
    EXPECT_EQ(move(2 * kSampleSlices, kSliceNs), 0u);
  }
}

// As two engines' relays that share a link, which notice each other at once.
TEST_F(CongestionTest, RestsThatBeginTogetherEndApart) {
  std::set<uint64_t> rests_ns;
  for (const uint64_t board : {0x7f00000000, 0x7f00010400, 0x7f00020800, 0x7f00030c00}) {
    watch = LinkWatch(board);
    now_ns = 1'000'000;
    usual[0] = {};
    learn();
    rests_ns.insert(move(kMany, 2 * kSliceNs));
  }
  EXPECT_GE(rests_ns.size(), 3u);
  EXPECT_GT(*rests_ns.rbegin(), *rests_ns.begin() + 50'000);
}

TEST_F(CongestionTest, ALinkThatIsSlowForGoodIsTheUsualOneAfterSomeSeconds) {
  learn();
  const uint64_t before_ns = now_ns;
  while (const uint64_t rest_ns = move(kMany, 2 * kSliceNs)) {
    rest(rest_ns);
    ASSERT_LT(now_ns - before_ns, 20e9);
  }
  EXPECT_GT(now_ns - before_ns, 1e9);
}

TEST(Rest, EndsEvenIfTheClockGoesBack) {
  EXPECT_TRUE(is_at_rest(1000, 2000));
  EXPECT_FALSE(is_at_rest(2000, 2000));
  EXPECT_FALSE(is_at_rest(3000, 2000));
  EXPECT_FALSE(is_at_rest(0, kMostRestNs + 1));
  EXPECT_FALSE(is_at_rest(1000, 0)) << "there was none";
}

// Where a sample's usual pace lies: no two kinds of transfers share one, and none lies outside.
TEST(UsualPaces, AreKeptApart) {
  std::set<uint64_t> offsets;
  PullArgs args{};
  for (args.direction = 0; args.direction < 2; ++args.direction)
    for (args.path_count = 1; args.path_count <= kMaxPaths; ++args.path_count)
      for (const bool both : {false, true}) {
        const uint64_t offset = usual_offset(args, {1, 1, both});
        EXPECT_TRUE(offsets.insert(offset).second);
        EXPECT_GE(offset, offsetof(LinkPace, usual));
        EXPECT_LE(offset + sizeof(UsualPace), sizeof(LinkPace));
      }
}

}  // namespace
}  // namespace braid::cuda
