// Which ways an engine finds to a peer, by what the peer says of its rails and its memory. Nobody
// answers: the network is simulated, and stands still.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>

#include "fabric/sim/network.h"
#include "transfer/engine.h"

namespace braid::transfer {
namespace {

/// What a rail of one NIC says.
RailDescription rail(const std::string& provider, const std::string& address, Place place) {
  return {provider, address, 1, place, {}};
}

class TransferWays : public testing::Test {
 protected:
  void open(std::vector<RailDescription> ours) {
    auto owned = std::make_unique<Owned>();
    owned->jobs = open_threads();
    std::vector<std::unique_ptr<Rail>> rails;
    for (const RailDescription& each : ours)
      rails.push_back(
          open_rail(*owned, each.host_address.starts_with("small") ? small_ : network_));
    EngineOptions options;
    options.incarnation = {1, 1};
    options.origin = {{1, 1}, 1, 1, 1};
    engine_ =
        std::make_unique<Engine>(std::move(owned), std::move(rails), std::move(ours), options);
    ASSERT_TRUE(engine_->add_buffer(memory_, kNoRights).ok());
  }
  std::unique_ptr<Rail> open_rail(Owned& owned) { return open_rail(owned, network_); }
  std::unique_ptr<Rail> open_rail(Owned& owned, fabric::sim::Network& network) {
    const int host = network.add_host([] {});
    return Rail::open(network.open_domain(host, ++places_), {1, 1}, {}, nullptr, owned).value();
  }
  /// A peer with these rails, and a range of 4096 bytes at 4096 at each place.
  uint64_t open_peer(std::vector<RailDescription> theirs, std::vector<PlaceDescription> places,
                     bool is_here = false, topology::NumaDistances distances = {}) {
    Description peer;
    peer.distances = std::move(distances);
    peer.incarnation = {2, 2};
    peer.origin = {{1, is_here ? 1u : 2u}, 1, 2, 2};
    for (RailDescription& each : theirs) {
      far_.push_back(open_rail(far_owned_));
      each.address = far_.back()->address();
    }
    peer.rails = std::move(theirs);
    peer.places = std::move(places);
    for (uint16_t i = 0; i < peer.places.size(); ++i)
      peer.ranges.push_back({4096u * (i + 1), 4096, kMayRead | kMayWrite, i});
    return engine_->open_segment(peer).value();
  }
  /// "near-0 to far-2 tier 1", by name.
  std::vector<std::string> ways(uint64_t segment, uint64_t address) {
    const auto found = engine_->explain({segment, Operation::kWrite, memory_.data(), address, 64});
    if (!found.ok()) return {found.status().message()};
    std::vector<std::string> all;
    for (const WayExplanation& way : found.value())
      all.push_back(way.text.substr(way.text.find(' ') + 1) + " tier " +
                    std::to_string(way.way.way.tier) + (way.way.stands_by ? " stands by" : ""));
    std::sort(all.begin(), all.end());
    return all;
  }
  using Ways = std::vector<std::string>;

  std::vector<std::byte> memory_ = std::vector<std::byte>(4096);
  simulation::Simulation simulation_{{}};
  fabric::sim::Network network_{simulation_, 1, fabric::sim::NetworkOptions{}};
  /// Its rails register no more than this.
  static constexpr size_t kSmallBytes = 1 << 20;
  fabric::sim::Network small_{simulation_, 1, {.region_bytes_max = kSmallBytes}};
  uint64_t places_ = 0;
  Owned far_owned_;
  std::vector<std::unique_ptr<Rail>> far_;
  std::unique_ptr<Engine> engine_;
};

const Place kNode0{false, 0, -1, -1}, kNode1{false, 1, -1, -1};

TEST_F(TransferWays, LeadToTheNicsThatAreNearTheFarMemory) {
  open({rail("tcp", "near-0", kNode0), rail("tcp", "near-1", kNode1)});
  const uint64_t segment =
      open_peer({rail("tcp", "far-0", kNode1), rail("tcp", "far-1", kNode0)},
                {{{}, ~uint64_t{0}}, {kNode1, ~uint64_t{0}}, {{true, 0, -1, 3}, ~uint64_t{0}}});
  EXPECT_EQ(ways(segment, 4096), (Ways{"near-0 to far-1 tier 0", "near-1 to far-0 tier 0"}))
      << "by node, where the memory's place is unknown";
  EXPECT_EQ(ways(segment, 8192), (Ways{"near-0 to far-0 tier 0", "near-1 to far-0 tier 0"}))
      << "both to the NIC of its node";
  EXPECT_EQ(ways(segment, 3 * 4096), Ways{cause_name(Cause::kNoWay)})
      << "no rail here reaches a GPU";
  EXPECT_EQ(ways(segment, 1 << 20), (Ways{"near-0 to far-1 tier 0", "near-1 to far-0 tier 0"}))
      << "what was registered since is not known";
}

TEST_F(TransferWays, LeadToTheNearestNodeOfTheOtherHostThatHasANic) {
  open({rail("tcp", "near-0", {}), rail("tcp", "near-1", {})});
  const std::vector<RailDescription> theirs = {rail("tcp", "far-1", kNode1),
                                               rail("tcp", "far-2", {false, 2, -1, -1})};
  const std::vector<PlaceDescription> at_node_0 = {{kNode0, ~uint64_t{0}}};
  const topology::NumaDistances distances{{0, 1, 2}, {{10, 32, 12}, {32, 10, 32}, {12, 32, 10}}};
  EXPECT_EQ(ways(open_peer(theirs, at_node_0, false, distances), 4096),
            (Ways{"near-0 to far-2 tier 2", "near-1 to far-2 tier 2"}));
}

TEST_F(TransferWays, LeadToBothNodesOfTheOtherHostIfItTellsNoDistances) {
  open({rail("tcp", "near-0", {}), rail("tcp", "near-1", {})});
  const uint64_t segment =
      open_peer({rail("tcp", "far-1", kNode1), rail("tcp", "far-2", {false, 2, -1, -1})},
                {{kNode0, ~uint64_t{0}}});
  EXPECT_EQ(ways(segment, 4096), (Ways{"near-0 to far-1 tier 2", "near-1 to far-2 tier 2"}));
}

TEST_F(TransferWays, LeadToRailsThatReachTheMemory) {
  open({rail("tcp", "near-0", {}), rail("tcp", "near-1", {})});
  const uint64_t segment =
      open_peer({rail("tcp", "far-0", {}), rail("tcp", "far-1", {})}, {{{}, 2}, {{}, 0}});
  EXPECT_EQ(ways(segment, 4096), (Ways{"near-0 to far-1 tier 0", "near-1 to far-1 tier 0"}));
  EXPECT_EQ(ways(segment, 8192), Ways{cause_name(Cause::kNoWay)});
}

TEST_F(TransferWays, DoNotLeadOverARailThatRefusesTheMemory) {
  open({rail("tcp", "near-0", {}), rail("tcp", "small-1", {})});
  const uint64_t segment =
      open_peer({rail("tcp", "far-0", {}), rail("tcp", "far-1", {})}, {{{}, 3}});
  std::vector<std::byte> large(kSmallBytes + 1);
  ASSERT_TRUE(engine_->add_buffer(large, kNoRights).ok());
  EXPECT_EQ(ways(segment, 4096), (Ways{"near-0 to far-0 tier 0", "small-1 to far-1 tier 0"}));
  memory_.swap(large);
  EXPECT_EQ(ways(segment, 4096), Ways{"near-0 to far-0 tier 0"});
  memory_.swap(large);
  const auto refused = engine_->refused_memory();
  ASSERT_EQ(refused.size(), 1u);
  EXPECT_EQ(refused.front().rail, "tcp small-1");
  EXPECT_EQ(refused.front().size_bytes, large.size());
  EXPECT_NE(refused.front().why.find("of this size"), std::string::npos) << refused.front().why;
  EXPECT_EQ(engine_->describe().places.size(), 2u) << "peers are told which rail reaches it";
}

TEST_F(TransferWays, AreNotThereForMemoryThatEveryRailRefuses) {
  open({rail("tcp", "small-0", {}), rail("tcp", "small-1", {})});
  std::vector<std::byte> large(kSmallBytes + 1);
  const auto added = engine_->add_buffer(large, kNoRights);
  ASSERT_FALSE(added.ok());
  EXPECT_NE(added.status().message().find("of this size"), std::string::npos);
  EXPECT_EQ(engine_->buffers().size(), 1u);
  EXPECT_TRUE(engine_->add_buffer(std::span(large).first(64), kNoRights).ok())
      << "nothing of it is left";
}

TEST_F(TransferWays, PairByGpuWhereEachNicHasOne) {
  open({rail("tcp", "near-0", {false, 0, 0, 0}), rail("tcp", "near-1", {false, 0, 1, 1})});
  const uint64_t segment = open_peer(
      {rail("tcp", "far-0", {false, 0, 0, 1}), rail("tcp", "far-1", {false, 0, 1, 0})}, {{{}, 3}});
  EXPECT_EQ(ways(segment, 4096), (Ways{"near-0 to far-1 tier 0", "near-1 to far-0 tier 0"}));
}

TEST_F(TransferWays, WithinAHostTheNearerTransportComesFirst) {
  open({rail("shm", "this host", {}), rail("tcp", "near", {})});
  const uint64_t segment =
      open_peer({rail("shm", "that host", {}), rail("tcp", "far", {})}, {{{}, 3}}, true);
  EXPECT_EQ(ways(segment, 4096),
            (Ways{"near to far tier 0 stands by", "this host to that host tier 0"}));
}

}  // namespace
}  // namespace braid::transfer
