// Which way a slice takes, how fast a rail is taken for, and whose turn it is.
#include "transfer/policy/spray.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <map>

#include "transfer/policy/rail_rate.h"
#include "transfer/policy/urgency.h"

namespace braid::transfer {
namespace {

WayView way(double eta_us, bool has_room = true, uint8_t tier = 0) {
  WayView view;
  view.eta_ns = eta_us * 1000;
  view.has_room = has_room;
  view.tier = tier;
  view.rate = 10;
  return view;
}

SliceView slice(uint64_t backlog_bytes = 0) {
  SliceView view;
  view.size_bytes = 64 << 10;
  view.backlog_bytes = backlog_bytes;
  return view;
}

TEST(Spray, ASliceTakesTheWayThatDeliversItSoonest) {
  EXPECT_EQ(spray(slice(), std::vector{way(30), way(10), way(20)}), 1u);
}

TEST(Spray, ItWaitsForAFullWayThatIsSoonerAllTheSame) {
  EXPECT_EQ(spray(slice(), std::vector{way(100), way(20, false)}), std::nullopt);
}

TEST(Spray, ASlowWayHelpsWhileTheQueueOfTheOthersIsLonger) {
  const std::vector ways = {way(100), way(20, false)};
  EXPECT_EQ(spray(slice(4 << 20), ways), 0u) << "4 MB at 20 GB/s are 210 us";
  EXPECT_EQ(spray(slice(1 << 20), ways), std::nullopt) << "1 MB are 52 us";
}

TEST(Spray, AFartherTierMustBeBetterByAQuarter) {
  EXPECT_EQ(spray(slice(), std::vector{way(20), way(17, true, 1)}), 0u);
  EXPECT_EQ(spray(slice(), std::vector{way(20), way(15, true, 1)}), 1u);
  EXPECT_EQ(spray(slice(64 << 20), std::vector{way(20, false), way(30, true, 1)}), std::nullopt)
      << "a long queue is no reason to go far and be late";
}

TEST(Spray, AFartherNodeMustBeBetterByAnotherQuarter) {
  EXPECT_EQ(spray(slice(), std::vector{way(20, true, 2), way(17, true, 3)}), 0u);
  EXPECT_EQ(spray(slice(), std::vector{way(40), way(28, true, 3), way(30, true, 2)}), 2u)
      << "40, 28 x 1.25 x 1.25 and 30 x 1.25";
  EXPECT_EQ(spray(slice(), std::vector{way(40), way(23, true, 3), way(30, true, 2)}), 1u);
}

TEST(Spray, WaysThatAreNotUsableDoNotCount) {
  std::vector ways = {way(10), way(40, true, 2)};
  ways[0].is_usable = false;
  EXPECT_EQ(spray(slice(), ways), 1u);
  ways[1].is_usable = false;
  EXPECT_EQ(spray(slice(), ways), std::nullopt);
}

TEST(Spray, WhatIsChosenHasRoomAndIsUsable) {
  EXPECT_TRUE(rc::check("spray keeps to what is there", [] {
    std::vector<WayView> ways;
    for (int i = *rc::gen::inRange(0, 9); i > 0; --i) {
      ways.push_back(way(*rc::gen::inRange(1, 1000), *rc::gen::arbitrary<bool>(),
                         *rc::gen::inRange<uint8_t>(0, 3)));
      ways.back().is_usable = *rc::gen::arbitrary<bool>();
    }
    const auto chosen = spray(slice(*rc::gen::inRange<uint64_t>(0, 1 << 26)), ways);
    if (chosen) {
      RC_ASSERT(ways[*chosen].has_room);
      RC_ASSERT(ways[*chosen].is_usable);
    } else {
      bool has_full = false, has_usable = false;
      for (const WayView& one : ways) {
        has_usable = has_usable || one.is_usable;
        has_full = has_full || (one.is_usable && !one.has_room);
      }
      RC_ASSERT(!has_usable || has_full);  // it waits for one that is full
    }
  }));
}

// ---- Rates ----

/// Slices of one size, one after the other, on a rail of this rate and latency.
void carry(RailRate& rate, double gbps, double latency_ns, size_t count, uint64_t depth,
           uint64_t& now_ns) {
  constexpr uint64_t kBytes = 64 << 10;
  double free_ns = static_cast<double>(now_ns);
  std::vector<uint64_t> ended;
  for (size_t i = 0; i < count; ++i) {
    const uint64_t posted_ns = i < depth ? now_ns : ended[i - depth];
    free_ns = std::max(free_ns, static_cast<double>(posted_ns)) + kBytes / gbps;
    ended.push_back(static_cast<uint64_t>(free_ns + latency_ns));
    rate.delivered(kBytes, posted_ns, latency_ns, ended.back());
  }
  now_ns = ended.back();
}

TEST(RailRate, FollowsWhatABusyRailDeliversUpAndDown) {
  RailRate rate(50);
  uint64_t now_ns = 1000;
  carry(rate, 25, 3000, 2000, 8, now_ns);
  EXPECT_NEAR(rate.at(now_ns, false), 25, 1);
  carry(rate, 2.5, 3000, 300, 8, now_ns);
  EXPECT_NEAR(rate.at(now_ns, false), 2.5, 0.2);
  carry(rate, 25, 3000, 2000, 8, now_ns);
  EXPECT_NEAR(rate.at(now_ns, false), 25, 1);
}

TEST(RailRate, LatencyIsNotTakenForSlowness) {
  RailRate rate(25);
  uint64_t now_ns = 1000;
  carry(rate, 25, 100'000, 500, 1, now_ns);  // one at a time: 2.6 us of 103
  EXPECT_GT(rate.at(now_ns, false), 20);
}

TEST(RailRate, OneThatIsSlowAloneIsFoundOut) {
  RailRate rate(25);
  uint64_t now_ns = 1000;
  carry(rate, 0.25, 3000, 20, 1, now_ns);
  EXPECT_LT(rate.at(now_ns, false), 0.5);
}

TEST(RailRate, ASlowRailThatIsIdleIsTriedAgainSomeTime) {
  RailRate rate(25);
  uint64_t now_ns = 1000;
  carry(rate, 0.25, 3000, 50, 4, now_ns);
  EXPECT_LT(rate.at(now_ns, true), 1);
  EXPECT_NEAR(rate.at(now_ns + 3'000'000'000, true), 25, 1);
}

TEST(BaseLatency, IsTheMinimumAndOldOnesAreForgotten) {
  BaseLatency base(9000);
  EXPECT_EQ(base.ns(), 9000);
  base.add(5000, 1);
  base.add(7000, 2);
  EXPECT_EQ(base.ns(), 5000);
  base.add(8000, 3 * BaseLatency::kWindowNs);
  EXPECT_EQ(base.ns(), 8000);
}

// ---- Turns ----

TEST(Turns, FlowsOfAPeerGetEqualBytesWhateverTheirSlices) {
  Turns turns;
  turns.add({1, 0, 10});
  turns.add({1, 0, 11});
  std::map<uint64_t, uint64_t> bytes;
  for (int i = 0; i < 3000; ++i)
    turns.take(0, [&](uint64_t flow) {
      const uint64_t size = flow == 10 ? 1 << 20 : 64 << 10;
      bytes[flow] += size;
      return size;
    });
  EXPECT_NEAR(static_cast<double>(bytes[10]) / static_cast<double>(bytes[11]), 1, 0.02);
}

TEST(Turns, APeerWithManyFlowsGetsNoMoreThanOneWithOne) {
  Turns turns;
  for (uint64_t flow = 0; flow < 9; ++flow) turns.add({1, 0, flow});
  turns.add({2, 0, 100});
  std::map<bool, int> slices;
  for (int i = 0; i < 1000; ++i)
    turns.take(0, [&](uint64_t flow) {
      ++slices[flow == 100];
      return uint64_t{65536};
    });
  EXPECT_NEAR(slices[true], 500, 5);
}

TEST(Turns, WhoHadNoRoomKeepsItsClaimUpToALimit) {
  Turns turns;
  turns.add({1, 0, 10});
  turns.add({1, 0, 11});
  bool is_blocked = true;
  std::map<uint64_t, uint64_t> bytes;
  const auto post = [&](uint64_t flow) -> uint64_t {
    if (flow == 10 && is_blocked) return 0;
    bytes[flow] += 65536;
    return 65536;
  };
  for (int i = 0; i < 16; ++i) turns.take(0, post);
  is_blocked = false;
  for (int i = 0; i < 16; ++i) turns.take(0, post);
  EXPECT_NEAR(static_cast<double>(bytes[10]), static_cast<double>(bytes[11]), 70000);
  is_blocked = true;
  for (int i = 0; i < 10000; ++i) turns.take(0, post);
  is_blocked = false;
  bytes.clear();
  for (int i = 0; i < 1000; ++i) turns.take(0, post);
  EXPECT_GT(bytes[11], 500u * 65536 - FairOrder::kClaimBytesMax);
}

TEST(UrgencyShare, BulkKeepsOutOfTheWayWhileAnUrgentRequestIsOpenAndAWhileAfterItBegan) {
  UrgencyShare share;
  EXPECT_FALSE(share.is_urgent_about(0));
  share.urgent_added(1000);
  EXPECT_TRUE(share.is_urgent_about(1000 + 10 * UrgencyShare::kMemoryNs)) << "it is still open";
  share.urgent_ended();
  EXPECT_TRUE(share.is_urgent_about(1000 + UrgencyShare::kMemoryNs - 1));
  EXPECT_FALSE(share.is_urgent_about(1000 + UrgencyShare::kMemoryNs));
}

TEST(UrgencyShare, BulkKeepsATwentiethBesideUrgentSlices) {
  UrgencyShare share;
  uint64_t bytes[2] = {0, 0};
  for (int i = 0; i < 10000; ++i) {
    const Urgency next = share.first(true, true);
    bytes[static_cast<int>(next)] += 65536;
    share.posted(next, 65536, true);
  }
  const double part = static_cast<double>(bytes[0]) / static_cast<double>(bytes[0] + bytes[1]);
  EXPECT_NEAR(part, 0.05, 0.002);
  EXPECT_EQ(share.first(false, true), Urgency::kBulk);
}

}  // namespace
}  // namespace braid::transfer
