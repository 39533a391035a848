// The policy of MMA sections 3.4.1 and 3.4.2, without a server.
#include "multipath/copy_engine/dispatch.h"

#include <gtest/gtest.h>

#include <deque>

#include <map>

namespace braid::multipath::copy_engine {
namespace {

constexpr uint64_t kMiB = uint64_t{1} << 20;
constexpr Direction kIn = Direction::kHostToDevice;
constexpr uint32_t kAll = 0xffff;
constexpr uint32_t kMostPieces = 64;

class DispatchTest : public ::testing::Test {
 protected:
  void start(const Policy& policy = {}) { dispatch.emplace(policy, 16, kMostPieces); }

  Job job(uint32_t id, int target, uint64_t size_bytes, Priority priority = Priority::kBulk) {
    pieces[id] = {{0, 0x1000, 0x2000, size_bytes}};
    return {id, target, kIn, priority, kAll, pieces[id]};
  }
  std::optional<Slice> pull(int gpu, uint64_t now_ns = 0) {
    return dispatch->pull(gpu, kIn, now_ns, true);
  }
  // Pulls and lands until nothing is left, over these GPUs in turn; bytes by GPU.
  std::map<int, uint64_t> run(const std::vector<int>& gpus) {
    std::map<int, uint64_t> carried;
    bool has_pulled = true;
    while (has_pulled) {
      has_pulled = false;
      for (const int gpu : gpus)
        if (const auto slice = pull(gpu)) {
          has_pulled = true;
          carried[gpu] += slice->size_bytes;
          dispatch->link_done(*slice, 0);
        }
    }
    return carried;
  }

  std::optional<Dispatch> dispatch;
  std::map<uint32_t, std::vector<Piece>> pieces;
};

TEST_F(DispatchTest, SlicesCoverEveryByteOnce) {
  start();
  dispatch->add(job(1, 0, 100 * kMiB + 3));
  uint64_t next = 0;
  for (int gpu = 0; const auto slice = pull(gpu); gpu = (gpu + 1) % 8) {
    EXPECT_EQ(slice->offset, next);
    next += slice->size_bytes;
    dispatch->link_done(*slice, 0);
  }
  EXPECT_EQ(next, 100 * kMiB + 3);
  EXPECT_EQ(dispatch->waiting_bytes(kIn), 0u);
}

TEST_F(DispatchTest, ALinkHoldsNoMoreThanItsDepth) {
  start();
  dispatch->add(job(1, 0, 100 * kMiB));
  const auto first = pull(3);
  EXPECT_TRUE(pull(3) && pull(3));
  EXPECT_FALSE(pull(3));
  dispatch->link_done(*first, 0);
  EXPECT_TRUE(pull(3));
  EXPECT_TRUE(pull(4)) << "another link has room";
}

TEST_F(DispatchTest, TheDirectPathIsFirst) {
  start();
  dispatch->add(job(1, 0, 500 * kMiB));
  dispatch->add(job(2, 1, 8 * kMiB));
  EXPECT_EQ(pull(1)->job, 2u) << "although GPU 0 has more waiting";
}

TEST_F(DispatchTest, WithDirectWorkEverywhereNobodyRelays) {
  start();
  std::vector<int> gpus;
  for (int gpu = 0; gpu < 8; ++gpu) {
    dispatch->add(job(gpu, gpu, 64 * kMiB));
    gpus.push_back(gpu);
  }
  for (const auto& [gpu, bytes] : run(gpus)) EXPECT_EQ(bytes, 64 * kMiB) << gpu;
}

TEST_F(DispatchTest, WithoutDirectFirstLinksMixEveryonesBytes) {
  Policy policy;
  policy.direct_first = false;
  start(policy);
  for (int gpu = 0; gpu < 4; ++gpu) dispatch->add(job(gpu, gpu, 64 * kMiB));
  int relayed = 0;
  for (int i = 0; i < 12; ++i)
    if (const auto slice = pull(i % 4); slice && !slice->is_direct()) ++relayed;
  EXPECT_GT(relayed, 0);
}

TEST_F(DispatchTest, WithoutDirectFirstTheOldestGoesFirstButAnUrgentOneOvertakes) {
  Policy policy;
  policy.direct_first = false;
  start(policy);
  dispatch->add(job(1, 1, 80 * kMiB));
  dispatch->add(job(2, 0, 80 * kMiB));
  EXPECT_EQ(pull(0)->job, 1u) << "although job 2 is GPU 0's own";
  dispatch->add(job(3, 2, 80 * kMiB, Priority::kUrgent));
  EXPECT_EQ(pull(0)->job, 3u);
}

TEST_F(DispatchTest, RelaysHelpTheLongestQueue) {
  start();
  dispatch->add(job(1, 1, 64 * kMiB));
  dispatch->add(job(2, 2, 80 * kMiB));
  EXPECT_EQ(pull(5)->target, 2);
}

TEST_F(DispatchTest, OrTheFavouredTarget) {
  Policy policy;
  policy.relay_order = RelayOrder::kFavourTarget;
  policy.favoured_gpu = 1;
  start(policy);
  dispatch->add(job(1, 1, 8 * kMiB));
  dispatch->add(job(2, 2, 800 * kMiB));
  EXPECT_EQ(pull(5)->target, 1);
  while (const auto slice = pull(1)) {
    dispatch->link_done(*slice, 0);
    if (!slice->is_direct()) break;
  }
  EXPECT_EQ(pull(5)->target, 2) << "when the favoured one has nothing left";
}

TEST_F(DispatchTest, AnUrgentJobOvertakesAtTheNextSlice) {
  start();
  dispatch->add(job(1, 0, 800 * kMiB));
  EXPECT_EQ(pull(0)->job, 1u);
  dispatch->add(job(2, 0, 80 * kMiB, Priority::kUrgent));
  dispatch->add(job(3, 0, 80 * kMiB, Priority::kUrgent));
  EXPECT_EQ(pull(0)->job, 2u) << "in order of arrival among its like";
  EXPECT_EQ(pull(4)->job, 2u) << "on relays too";
}

TEST_F(DispatchTest, OnlyAllowedRelaysTakePart) {
  start();
  Job limited = job(1, 0, 80 * kMiB);
  limited.relays = 1u << 3;
  dispatch->add(limited);
  EXPECT_FALSE(pull(2));
  EXPECT_TRUE(pull(3));
  dispatch->drop_relay(3);
  EXPECT_FALSE(pull(3));
  EXPECT_TRUE(pull(0));
}

TEST_F(DispatchTest, ALinkWithDirectWorkUnderWayRelaysOnlyIfAllAreEqual) {
  for (const bool direct_first : {true, false}) {
    Policy policy;
    policy.direct_first = direct_first;
    start(policy);
    dispatch->add(job(1, 0, 1 * kMiB));
    dispatch->add(job(2, 1, 800 * kMiB));
    const auto own = pull(0);
    ASSERT_TRUE(own && own->is_direct());
    EXPECT_EQ(pull(0).has_value(), !direct_first);
    dispatch->link_done(*own, 0);
    EXPECT_TRUE(pull(0));
  }
}

// A link that drains half as fast as usual, for two samples of four slices, rests when it yields,
// and goes on when it competes.
TEST_F(DispatchTest, ACongestedLinkRestsForAPeriod) {
  for (const bool yields : {true, false}) {
    Policy policy;
    policy.yields = yields;
    start(policy);
    dispatch->add(job(1, 0, 4000 * kMiB));
    uint64_t now_ns = 0;
    std::deque<Slice> under_way;
    const auto fill = [&] {
      while (const auto slice = pull(3, now_ns)) under_way.push_back(*slice);
    };
    const auto land_one_after = [&](uint64_t slice_ns) {
      now_ns += slice_ns;
      dispatch->link_done(under_way.front(), now_ns);
      under_way.pop_front();
      dispatch->settle(now_ns);
      fill();
    };
    fill();
    const size_t full = under_way.size();
    for (int i = 0; i < 12; ++i) land_one_after(80'000);
    EXPECT_EQ(under_way.size(), full);
    for (int i = 0; i < 8; ++i) land_one_after(160'000);
    EXPECT_EQ(under_way.size() == full, !yields);
    EXPECT_TRUE(pull(0, now_ns)) << "the direct path never rests";
    dispatch->link_done(under_way.front(), 0);
    EXPECT_TRUE(pull(3, now_ns + 10'000'000)) << "and in the end it takes part again";
  }
}

// Host memory carries both directions: a link that braid uses both ways is slower, and not
// congested.
TEST_F(DispatchTest, BraidsOwnBytesTheOtherWayAreNoCongestion) {
  start();
  constexpr Direction kOut = Direction::kDeviceToHost;
  dispatch->add(job(1, 0, 4000 * kMiB));
  Job back = job(2, 0, 4000 * kMiB);
  back.direction = kOut;
  uint64_t now_ns = 0;
  std::map<Direction, std::deque<Slice>> under_way;
  const auto fill = [&](Direction direction) {
    while (const auto slice = dispatch->pull(3, direction, now_ns, true))
      under_way[direction].push_back(*slice);
    return under_way[direction].size();
  };
  const auto land_one = [&](Direction direction) {
    ASSERT_FALSE(under_way[direction].empty()) << "the link rests";
    dispatch->link_done(under_way[direction].front(), now_ns);
    under_way[direction].pop_front();
  };
  const size_t full = fill(kIn);
  for (int i = 0; i < 12; ++i) {
    now_ns += 80'000;
    land_one(kIn);
    dispatch->settle(now_ns);
    fill(kIn);
  }
  dispatch->add(back);
  fill(kOut);
  for (int i = 0; i < 24; ++i) {
    now_ns += 160'000;
    land_one(kIn);
    land_one(kOut);
    dispatch->settle(now_ns);
    EXPECT_EQ(fill(kIn), full) << "after " << i << " slices";
    fill(kOut);
  }
}

// A batch's segments take time of their own, which is expected, and no congestion.
TEST_F(DispatchTest, SmallSegmentsAreNoCongestion) {
  start();
  uint64_t now_ns = 0;
  std::deque<Slice> under_way;
  const auto carry = [&](int slices) {  // the link never runs out
    for (int i = 0; i < slices; ++i) {
      while (const auto slice = pull(3, now_ns)) under_way.push_back(*slice);
      ASSERT_FALSE(under_way.empty()) << i;
      now_ns += static_cast<uint64_t>(under_way.front().link_us * 1e3);
      dispatch->link_done(under_way.front(), now_ns);
      under_way.pop_front();
      dispatch->settle(now_ns);
    }
  };
  dispatch->add(job(1, 0, 4096 * kMiB));
  carry(40);
  dispatch->remove(1);
  std::vector<Piece>& small = pieces[2];
  for (uint64_t i = 0; i < 32768; ++i) small.push_back({i * 8192, i * 16384, i * 16384, 8192});
  dispatch->add({2, 0, kIn, Priority::kBulk, kAll, small});
  carry(200);
}

TEST_F(DispatchTest, SlicesFollowSizeAndPathsAndShrinkTowardsTheEnd) {
  start();
  dispatch->add(job(1, 0, 1024 * kMiB));
  EXPECT_EQ(pull(1)->size_bytes, kRelayBufferBytes);
  start();
  Job few = job(2, 0, 16 * kMiB);
  few.relays = 1u << 1;
  dispatch->add(few);
  const uint64_t first = pull(0)->size_bytes;
  EXPECT_GT(first, 2 * kMiB);
  EXPECT_LT(first, 4 * kMiB);
  uint64_t last = 0;
  while (const auto slice = pull(0)) {
    last = slice->size_bytes;
    dispatch->link_done(*slice, 0);
  }
  EXPECT_LE(last, 1 * kMiB);
}

// Nobody helps while every link has direct work: gaps count, and balance does not.
TEST_F(DispatchTest, SlicesAreLargerWhereNobodyHelps) {
  start();
  for (int gpu = 0; gpu < 16; ++gpu) dispatch->add(job(gpu, gpu, 256 * kMiB));
  const uint64_t alone = pull(0)->size_bytes;
  start();
  dispatch->add(job(1, 0, 256 * kMiB));
  EXPECT_GT(alone, 2 * pull(0)->size_bytes);
}

TEST_F(DispatchTest, TheSizeThatTheUserAsksForIsEverySlices) {
  Policy policy;
  policy.slice_bytes = 512 << 10;
  start(policy);
  dispatch->add(job(1, 0, 32 * kMiB));
  for (int i = 0; i < 64; ++i) {
    const auto slice = pull(i % 16);
    ASSERT_TRUE(slice.has_value());
    EXPECT_EQ(slice->size_bytes, policy.slice_bytes);
    dispatch->link_done(*slice, 0);
  }
  EXPECT_EQ(dispatch->waiting_bytes(kIn), 0u);
}

// A link whose slice is longer than the thread needs has one; a short one gets more at once.
TEST_F(DispatchTest, ALinkIsGivenItsNextSliceWhenItWillSoonNeedIt) {
  Policy policy;
  policy.slice_bytes = 32 * kMiB;  // 600 us
  start(policy);
  dispatch->add(job(1, 0, 320 * kMiB));
  EXPECT_TRUE(pull(0));
  EXPECT_FALSE(pull(0));
  EXPECT_FALSE(pull(0, 200'000));
  EXPECT_TRUE(pull(0, 595'000));
  policy.slice_bytes = kMiB;  // 19 us
  start(policy);
  dispatch->add(job(1, 0, 320 * kMiB));
  EXPECT_TRUE(pull(0) && pull(0) && pull(0));
}

TEST_F(DispatchTest, AStaticSplitIsKept) {
  Policy policy;
  policy.split = {1, 2};
  start(policy);
  dispatch->add(job(1, 0, 96 * kMiB));
  auto carried = run({0, 1, 2});
  EXPECT_EQ(carried[0], 32 * kMiB);
  EXPECT_EQ(carried[1], 64 * kMiB);
  EXPECT_EQ(carried.count(2), 0u);
}

TEST_F(DispatchTest, WhatComesBackGoesDirect) {
  start();
  dispatch->add(job(1, 0, 64 * kMiB));
  const auto lost = pull(3);
  dispatch->link_done(*lost, 0);
  dispatch->drop_relay(3);
  dispatch->take_back(*lost);
  const auto again = pull(0);
  EXPECT_EQ(again->offset, lost->offset);
  EXPECT_TRUE(again->is_direct());
  EXPECT_EQ(again->attempts, 1u);
}

// Many small pieces: a slice ends where issuing it would keep other links waiting.
TEST_F(DispatchTest, ASliceHasAFewPiecesOnly) {
  start();
  std::vector<Piece> small;
  for (uint64_t i = 0; i < 1000; ++i) small.push_back({i * 8192, i * 16384, i * 24576, 8192});
  dispatch->add({1, 0, kIn, Priority::kBulk, kAll, small});
  uint64_t bytes = 0;
  while (const auto slice = pull(0)) {
    EXPECT_EQ(slice->offset, slice->first_piece * uint64_t{8192});
    EXPECT_LE(slice->size_bytes, kMostPieces * 8192);
    bytes += slice->size_bytes;
    dispatch->link_done(*slice, 0);
  }
  EXPECT_EQ(bytes, 1000 * 8192u);
}

TEST(PiecePoolTest, MergesWhatContinuesAtBothEnds) {
  PiecePool pool(4, 4);
  auto* host = reinterpret_cast<uint8_t*>(0x10000);
  const std::vector<Segment> segments = {{host, 0x20000, 0x100},
                                         {host + 0x100, 0x20100, 0x100},
                                         {host, 0, 0},
                                         {host + 0x200, 0x30000, 0x100}};
  const auto taken = pool.take(segments);
  ASSERT_EQ(taken.size(), 2u);
  EXPECT_EQ(taken[0].size_bytes, 0x200u);
  EXPECT_EQ(taken[1].offset, 0x200u);
}

TEST(PiecePoolTest, RoomComesBackInAnyOrder) {
  PiecePool pool(6, 4);
  auto* host = reinterpret_cast<uint8_t*>(0x10000);
  const std::vector<Segment> two = {{host, 0x20000, 0x100}, {host + 0x300, 0x30000, 0x100}};
  const auto first = pool.take(two);
  const auto second = pool.take(two);
  const auto third = pool.take(two);
  ASSERT_EQ(third.size(), 2u);
  EXPECT_TRUE(pool.take(two).empty());
  pool.give_back(second);
  EXPECT_EQ(pool.take(two).data(), second.data());
  pool.give_back(first);
  pool.give_back(third);
  EXPECT_EQ(pool.take(two).data(), first.data());
}

}  // namespace
}  // namespace braid::multipath::copy_engine
