// A peer that could not be reached for so long that it was given up, and goes on.
#include <gtest/gtest.h>

#include "transfer/dialler.h"

namespace braid::transfer::test {
namespace {

using Names = std::vector<std::string>;

/// Longer than a peer is waited for: 5 s until its link is given up, and 10 s without one.
constexpr double kLongPauseUs = 16'500'000;

/// It has dialled by itself, and uses its link.
TEST(TransferLostPeers, OneThatIsBackCanBeOpenedAgain) {
  RailNet net;
  RailNet::Side& peer = net.add();
  Dialler me(net);
  std::vector<std::byte> mine(64), theirs(64);
  const uint64_t buffer = me.owned.buffers.add(mine, kMayWrite).value();
  ASSERT_TRUE(me.fabric->add_buffer(*me.owned.buffers.find(buffer)).ok());
  const uint64_t its = net.add_buffer(peer, theirs, kNoRights);
  me.add_ways({&peer});
  ASSERT_TRUE(net.run(100'000, [&] { return me.are_up(0, 1); }));
  net.pause(peer);
  ASSERT_TRUE(net.run(kLongPauseUs, [&] { return !me.lost.empty(); }));
  net.resume(peer);
  ASSERT_TRUE(net.run(10'000'000, [&] { return !peer.lost.empty(); }));
  std::optional<uint64_t> link;
  ASSERT_TRUE(net.run(1'000'000, [&] {
    if (link && peer.rail->is_up(*link)) return true;
    if (link && peer.rail->is_open(*link)) return false;
    const auto dialled =
        peer.rail->dial(me.who, me.fabric->rail(0).address(), net.now_ns() + 100'000'000);
    if (dialled.ok()) link = dialled.value();
    return false;
  }));
  peer.rail->post(*link,
                  {1, Operation::kWrite, its, theirs, reinterpret_cast<uint64_t>(mine.data()), 0});
  ASSERT_TRUE(net.run(100'000, [&] { return peer.ended.contains(1); }));
  EXPECT_EQ(peer.ended.at(1), Cause::kNone);
  me.fabric->remove_peer(peer.who);
  me.add_ways({&peer});
  EXPECT_TRUE(net.run(3'000'000, [&] { return me.are_up(1, 2); }));
}

/// Its ways are probed for as long as a segment of it is open.
TEST(TransferLostPeers, ProbesOfItsWaysEndAtOnce) {
  RailNet net;
  RailNet::Side& peer = net.add();
  Dialler me(net);
  me.add_ways({&peer});
  ASSERT_TRUE(net.run(100'000, [&] { return me.are_up(0, 1); }));
  net.pause(peer);
  uint64_t probes = 0;
  const bool is_lost = net.run(kLongPauseUs, [&] {
    if (!me.are_up(0, 1) && probes < 50) me.fabric->probe(0, ++probes);
    return !me.lost.empty();
  });
  ASSERT_TRUE(is_lost);
  for (int i = 0; i < 10; ++i) me.fabric->probe(0, ++probes);
  EXPECT_TRUE(net.run(10'000, [&] { return me.ended.size() == probes; }))
      << me.ended.size() << " of " << probes;
  for (const auto& [probe, cause] : me.ended) EXPECT_EQ(cause, Cause::kPathFailed) << probe;
}

class TransferLateNotifications : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(near.fabric->add_way(0, far.who, 0, far.fabric->rail(0).address()).ok());
    near.ways = 1;
    ASSERT_TRUE(connect());
  }
  /// As a scheduler does that wants the way.
  bool connect() {
    uint64_t probes = 0;
    const uint64_t before = near.fabric->generation(0);
    for (int turn = 0; turn < 500; ++turn) {
      if (!near.fabric->is_up(0)) near.fabric->probe(0, ++probes);
      const auto is_up = [&] {
        return near.fabric->is_up(0) && near.fabric->generation(0) != before;
      };
      if (net.run(10'000, is_up)) return true;
    }
    return false;
  }
  bool arrive(const Dialler& at, const Names& names) {
    const bool are_there = net.run(2'000'000, [&] { return at.notified.size() >= names.size(); });
    EXPECT_EQ(at.notified, names);
    return are_there;
  }

  RailNet net;
  Dialler near{net, {5, 5}}, far{net, {6, 6}};
};

/// The other side has forgotten that it ever was connected.
TEST_F(TransferLateNotifications, OfAProcessThatWasStoppedForLongArrive) {
  ASSERT_TRUE(near.fabric->notify(far.who, "1", {}));
  ASSERT_TRUE(near.fabric->notify(far.who, "2", {}));
  ASSERT_TRUE(arrive(far, {"1", "2"}));
  near.pause();
  net.run(kLongPauseUs);
  near.resume();
  ASSERT_TRUE(connect());
  ASSERT_TRUE(near.fabric->notify(far.who, "3", {}));
  EXPECT_TRUE(arrive(far, {"1", "2", "3"}));
}

TEST_F(TransferLateNotifications, ToAProcessThatWasStoppedForLongArrive) {
  ASSERT_TRUE(far.fabric->notify(near.who, "1", {}));
  ASSERT_TRUE(far.fabric->notify(near.who, "2", {}));
  ASSERT_TRUE(arrive(near, {"1", "2"}));
  near.pause();
  net.run(kLongPauseUs);
  near.resume();
  ASSERT_TRUE(connect());
  ASSERT_TRUE(far.fabric->notify(near.who, "3", {}));
  EXPECT_TRUE(arrive(near, {"1", "2", "3"}));
}

}  // namespace
}  // namespace braid::transfer::test
