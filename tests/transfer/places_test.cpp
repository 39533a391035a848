// Tiers, pairs of NICs, shares of processes and routes.
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <numeric>
#include <set>

#include "tests/topology/four_nodes.h"
#include "transfer/policy/pairing.h"
#include "transfer/policy/routes.h"
#include "transfer/policy/share.h"
#include "transfer/policy/tiers.h"

namespace braid::transfer {
namespace {

// As the paper's server: a GPU and a NIC beside each other under each switch, four on each node.
std::vector<Place> eight_nics() {
  std::vector<Place> nics;
  for (int i = 0; i < 8; ++i) nics.push_back({false, i / 4, i});
  return nics;
}

TEST(Tiers, AreThoseOfThePaper) {
  EXPECT_EQ(tiers({true, 0, 1}, eight_nics()), (std::vector<uint8_t>{1, 0, 1, 1, 2, 2, 2, 2}));
  EXPECT_EQ(tiers({false, 1, -1}, eight_nics()), (std::vector<uint8_t>{2, 2, 2, 2, 0, 0, 0, 0}));
}

TEST(Tiers, AGpuWithoutANicAtItsSwitchHasTheNearestOfItsNode) {
  const std::vector<Place> nics = {{false, 0, 7}, {false, 1, 8}};
  EXPECT_EQ(tiers({true, 1, 3}, nics), (std::vector<uint8_t>{2, 0}));
}

TEST(Tiers, WhatIsUnknownCountsAsNear) {
  EXPECT_EQ(tiers({false, 0, -1}, std::vector<Place>{{false, -1, -1}}), (std::vector<uint8_t>{0}));
}

// Of a server of four nodes, whose node 0 has no NIC.
struct FourNodes {
  topology::NumaDistances distances;
  std::vector<Place> nics;

  FourNodes() {
    const auto server = topology::parse_profile(topology::four_nodes().dump(), "four.json");
    EXPECT_TRUE(server.ok()) << server.status().message();
    distances = server.value().numa_distances.value;
    for (const topology::Nic& nic : server.value().nics)
      nics.insert(nics.begin(), {false, nic.numa_node, -1});  // the farthest first
  }
};

TEST(Tiers, FartherNodesComeInTheOrderOfTheirDistance) {
  const FourNodes host;
  EXPECT_EQ(tiers({false, 0, -1}, host.nics, host.distances), (std::vector<uint8_t>{3, 3, 2}));
  EXPECT_EQ(tiers({false, 2, -1}, host.nics, host.distances), (std::vector<uint8_t>{2, 0, 3}));
  EXPECT_EQ(tiers({true, 1, 3}, host.nics, host.distances), (std::vector<uint8_t>{3, 3, 0}));
  EXPECT_EQ(tiers({false, 0, -1}, host.nics), (std::vector<uint8_t>{2, 2, 2}))
      << "all other nodes are alike where distances are unknown";
  EXPECT_EQ(tiers({false, 0, -1}, std::vector<Place>{{false, 7, -1}}, host.distances),
            (std::vector<uint8_t>{4}))
      << "a node without a distance is the farthest";
}

TEST(Tiers, BetweenTwoNodesADistanceChangesNothing) {
  const topology::NumaDistances distances{{0, 1}, {{10, 21}, {21, 10}}};
  for (const Place& memory : {Place{true, 0, 1}, Place{false, 1, -1}, Place{false, -1, -1}})
    EXPECT_EQ(tiers(memory, eight_nics(), distances), tiers(memory, eight_nics()));
}

TEST(Tiers, EachFartherNodeIsOneStepMore) {
  const auto steps = [](uint8_t nearest) {
    std::vector<int> found;
    for (uint8_t tier = 0; tier < 5; ++tier) found.push_back(steps_beyond(tier, nearest));
    return found;
  };
  EXPECT_EQ(steps(kNearest), (std::vector<int>{0, 1, 1, 2, 3}));
  EXPECT_EQ(steps(kSameNode), (std::vector<int>{0, 0, 1, 2, 3}));
  EXPECT_EQ(steps(kOtherNode), (std::vector<int>{0, 0, 0, 1, 2}));
}

// ---- Pairs ----

TEST(Pairing, LeadsToTheNearerNodeOfTheFarMemory) {
  const FourNodes host;  // both hosts are alike
  const std::vector<uint8_t> near = tiers({false, 1, -1}, host.nics, host.distances);
  const std::vector<uint8_t> far = tiers({false, 0, -1}, host.nics, host.distances);
  EXPECT_EQ(pairs_between(near, far, pair_up(host.nics, host.nics)),
            (std::vector<NicPair>{{0, 0, 3}, {1, 1, 3}, {2, 2, 2}}))
      << "the NICs of the far socket have each other";
  const std::vector<uint8_t> all_near = tiers({false, -1, -1}, host.nics, host.distances);
  EXPECT_EQ(pairs_between(all_near, far, pair_up(host.nics, host.nics)),
            (std::vector<NicPair>{{0, 2, 2}, {1, 2, 2}, {2, 2, 2}}))
      << "all write to the NIC of the node beside";
}

TEST(Pairing, ByNodeIsOneToOneWithinNodes) {
  std::vector<Place> theirs = eight_nics();
  std::rotate(theirs.begin(), theirs.begin() + 4, theirs.end());  // node 1 first
  EXPECT_EQ(pair_by_node(eight_nics(), theirs), (Pairing{4, 5, 6, 7, 0, 1, 2, 3}));
}

TEST(Pairing, ByGpuFollowsTheGpuOfTheSameNumber) {
  EXPECT_EQ(pair_by_gpu(std::vector{3, 1, -1}, std::vector{1, 2, 3}), (Pairing{2, 0, 2}));
}

TEST(Pairing, IsByGpuWhereEachNicHasOneAndElseByNode) {
  std::vector<Place> ours = eight_nics(), theirs = eight_nics();
  for (int i = 0; i < 8; ++i) {
    ours[static_cast<size_t>(i)].gpu = i;
    theirs[static_cast<size_t>(i)].gpu = 7 - i;
  }
  EXPECT_EQ(pair_up(ours, theirs), (Pairing{7, 6, 5, 4, 3, 2, 1, 0}));
  theirs[3].gpu = -1;
  EXPECT_EQ(pair_up(ours, theirs), (Pairing{0, 1, 2, 3, 4, 5, 6, 7}));
}

TEST(Pairing, WithoutKnownPlacesItIsInOrder) {
  EXPECT_EQ(pair_up(std::vector<Place>(3), std::vector<Place>(2)), (Pairing{0, 1, 0}));
}

TEST(Pairing, APartnerThatIsFarFromTheMemoryIsReplacedInTurn) {
  const std::vector<uint8_t> ours = {0, 0}, theirs = {2, 0, 0};
  EXPECT_EQ(pairs_between(ours, theirs, {0, 2}), (std::vector<NicPair>{{0, 1, 0}, {1, 2, 0}}));
}

// ---- Shares ----

TEST(Share, WhatNobodyNeedsGoesToThoseThatWantMore) {
  EXPECT_EQ(max_min(10, std::vector{1.0, 20.0, 20.0}), (std::vector{1.0, 4.5, 4.5}));
}

TEST(Share, MaxMinGivesNobodyTooMuchAndLeavesNothing) {
  EXPECT_TRUE(rc::check("max-min", [] {
    const auto wanted =
        *rc::gen::nonEmpty(rc::gen::container<std::vector<int>>(rc::gen::inRange(0, 100)));
    const std::vector<double> demands(wanted.begin(), wanted.end());
    const double capacity = *rc::gen::inRange(1, 300);
    const std::vector<double> parts = max_min(capacity, demands);
    const double sum = std::accumulate(parts.begin(), parts.end(), 0.0);
    const double all = std::accumulate(demands.begin(), demands.end(), 0.0);
    RC_ASSERT(std::abs(sum - std::min(capacity, all)) < 1e-9);
    for (size_t i = 0; i < parts.size(); ++i) {
      RC_ASSERT(parts[i] <= demands[i] + 1e-9);
      for (size_t j = 0; j < parts.size(); ++j)  // who has less than it wants has as much as any
        RC_ASSERT(parts[i] >= demands[i] - 1e-9 || parts[i] >= parts[j] - 1e-9);
    }
  }));
}

TEST(Share, DeadAndIdleProcessesTakeNothing) {
  constexpr uint64_t kNow = 100'000'000;
  std::vector<ShareRow> rows = {{1, kNow, 0, true}, {2, kNow, 0, true}};
  EXPECT_DOUBLE_EQ(share_of(rows, 0, 10, kNow), 0.5);
  rows[1].beat_ns = kNow - 6'000'000;  // it has crashed
  EXPECT_DOUBLE_EQ(share_of(rows, 0, 10, kNow), 1);
  rows[1] = {2, kNow, 0.8, false};
  EXPECT_DOUBLE_EQ(share_of(rows, 0, 10, kNow), 0.9) << "it uses 8 %, and may grow by a quarter";
  rows[1] = {};
  EXPECT_DOUBLE_EQ(share_of(rows, 0, 10, kNow), 1);
}

// ---- Routes ----

// Host 0, GPU 1, their GPU 2, their host 3: as in 3.2.3 of the paper.
const std::vector<Hop> kHops = {
    {0, 1, 50, 4}, {1, 2, 200, 2}, {2, 3, 50, 4}, {0, 3, 2, 50}, {1, 0, 50, 4}};

TEST(Routes, ThreeHopsBeatASlowDirectOneForLargeTransfers) {
  const auto large = find_routes(kHops, 0, 3, 64 << 20, 1 << 20);
  ASSERT_EQ(large.size(), 2u);
  EXPECT_EQ(large[0].hops, (std::vector<size_t>{0, 1, 2}));
  const auto small = find_routes(kHops, 0, 3, 4096, 1 << 20);
  EXPECT_EQ(small[0].hops, (std::vector<size_t>{0, 1, 2})) << "10.3 us beat 52";
  EXPECT_TRUE(find_routes(kHops, 3, 0, 4096, 1 << 20).empty());
}

TEST(Routes, NoneIsLongerThanThreeHops) {
  const std::vector<Hop> line = {{0, 1, 1, 1}, {1, 2, 1, 1}, {2, 3, 1, 1}, {3, 4, 1, 1}};
  EXPECT_EQ(find_routes(line, 0, 3, 1, 1).size(), 1u);
  EXPECT_TRUE(find_routes(line, 0, 4, 1, 1).empty());
}

TEST(Routes, APipelineDeliversEveryChunkOnceAndNeverOverfillsABuffer) {
  EXPECT_TRUE(rc::check("a pipeline ends, in whatever order its steps do", [] {
    const uint64_t size = *rc::gen::inRange<uint64_t>(0, 5000);
    const uint64_t chunk = *rc::gen::inRange<uint64_t>(1, 700);
    const auto buffers = *rc::gen::container<std::vector<uint32_t>>(*rc::gen::inRange<size_t>(0, 3),
                                                                    rc::gen::inRange(1u, 4u));
    Pipeline pipeline(size, chunk, buffers);
    std::vector<Pipeline::Step> under_way;
    std::set<std::pair<size_t, uint32_t>> full;  // buffers, by the hop before them
    std::set<uint64_t> delivered;
    uint64_t bytes = 0;
    while (!pipeline.is_done()) {
      while (const auto step = pipeline.next()) {
        if (step->hop < buffers.size()) {
          RC_ASSERT(step->to_buffer < buffers[step->hop]);
          RC_ASSERT(full.insert({step->hop, step->to_buffer}).second);
        }
        under_way.push_back(*step);
      }
      RC_ASSERT(!under_way.empty());
      const size_t which = *rc::gen::inRange<size_t>(0, under_way.size());
      const Pipeline::Step step = under_way[which];
      under_way.erase(under_way.begin() + static_cast<std::ptrdiff_t>(which));
      if (step.hop > 0) full.erase({step.hop - 1, step.from_buffer});
      if (step.hop == buffers.size()) {
        RC_ASSERT(delivered.insert(step.offset).second);
        bytes += step.size_bytes;
      }
      pipeline.done(step);
    }
    RC_ASSERT(bytes == size);
  }));
}

}  // namespace
}  // namespace braid::transfer
