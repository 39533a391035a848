// How writes and leaves to write end: cancelled, revoked, or because the peer is gone.
#include <gtest/gtest.h>

#include "fabric/granting.h"
#include "fabric/small_net.h"

namespace braid::fabric {
namespace {

using test::Granting;
using test::SmallNet;

class EndsTest : public testing::Test {
 protected:
  EndsTest() { net_.run(10); }

  SmallNet net_;
  SmallNet::Node& owner_ = net_.add(1);
  SmallNet::Node& writer_ = net_.add(2);
};

TEST_F(EndsTest, ACancelledBarrierWaitsForNobody) {
  const uint64_t of_writer = net_.connect(owner_, writer_);
  const uint32_t here = owner_.engine->counters().acquire().value();
  const uint64_t group =
      owner_.engine->add_group({{of_writer, 0, make_immediate(7, 1), here}}).value();
  const uint64_t ticket = owner_.engine->barrier(group, ~uint64_t{0}).value();
  net_.run(200);
  EXPECT_EQ(owner_.engine->state(ticket).value(), TicketState::kPending);
  ASSERT_TRUE(owner_.engine->cancel(ticket).ok());
  EXPECT_EQ(owner_.engine->state(ticket).value(), TicketState::kFailed);
  EXPECT_EQ(owner_.engine->missing(ticket).value(), std::vector<uint64_t>{of_writer});
  EXPECT_FALSE(owner_.engine->barrier(group, ~uint64_t{0}).ok()) << "members may have lost count";
}

/// One part goes to a peer that is not read, and waits for room; the other has ended.
TEST_F(EndsTest, OfACancelledScatterThePartsThatAreUnderWayEndAsTheyWouldHave) {
  sim::NetworkOptions options = SmallNet::software();
  options.postings_max = 2;
  options.segments_max = 1;
  SmallNet net(options);
  net.options.heartbeat.interval_ns = 0;
  net.options.slicing = {64, 8};
  SmallNet::Node &writer = net.add(1), &quick = net.add(2), &slow = net.add(3);
  Granting first(net, quick, writer, 512), second(net, slow, writer, 512);
  const uint64_t group = writer.engine
                             ->add_group({{net.number_of(quick, writer), first.target, 0, 0},
                                          {net.number_of(slow, writer), second.target, 0, 0}})
                             .value();
  net.pause(slow);
  const std::vector<Part> parts{{{0, 0, 512}, {}}, {{0, 0, 512}, {}}};
  const uint64_t ticket = writer.engine->scatter(first.from, group, parts, ~uint64_t{0}).value();
  ASSERT_TRUE(net.run(5'000, [&] { return first.landed() == 512; }));
  net.run(500);
  ASSERT_TRUE(writer.engine->cancel(ticket).ok());
  EXPECT_EQ(writer.engine->state(ticket).value(), TicketState::kPending) << "a slice is under way";
  net.resume(slow);
  net.run(5'000, [&] { return writer.engine->state(ticket).value() != TicketState::kPending; });
  EXPECT_EQ(writer.engine->state(ticket).value(), TicketState::kFailed);
  EXPECT_EQ(writer.engine->missing(ticket).value(),
            std::vector<uint64_t>{net.number_of(slow, writer)});
  EXPECT_LT(second.landed(), 512);
}

/// However many are revoked beside one that lives, of the same peer or another.
TEST_F(EndsTest, ManyRevocationsBesideALongLivedGrantAreRemembered) {
  SmallNet net;
  net.options.remembered_max = 10;
  SmallNet::Node &owner = net.add(1), &writer = net.add(2), &third = net.add(3);
  Granting lasting(net, owner, writer, 512), elsewhere(net, owner, third, 512);
  Descriptor revoked;
  for (int i = 0; i < 50; ++i) {
    if (i % 2 == 0) {  // between them are some of the other peer's
      ASSERT_TRUE(owner.engine->grant(elsewhere.region, elsewhere.peer, 0, 512).ok());
    }
    const Granted granted = owner.engine->grant(lasting.region, lasting.peer, 0, 512).value();
    revoked = granted.descriptor;
    ASSERT_TRUE(owner.engine->revoke(granted.grant, net.now_ns() + 1'000'000'000).ok());
    ASSERT_TRUE(net.run(
        1'000, [&] { return owner.engine->fence(granted.grant).value() == Fence::kFenced; }));
    ASSERT_TRUE(owner.engine->forget_grant(granted.grant).ok());
  }
  EXPECT_FALSE(writer.engine->next_failed());
  EXPECT_EQ(writer.engine->open_target(revoked).status().message(),
            "the owner has revoked this descriptor");
  const uint64_t ticket = lasting.write(0, 512);
  EXPECT_TRUE(
      net.run(1'000, [&] { return writer.engine->state(ticket).value() == TicketState::kDone; }));
}

TEST_F(EndsTest, OfTwoWhoRevokeTheEarlierLimitCounts) {
  Granting given(net_, owner_, writer_, 512);
  net_.pause(writer_);
  const uint64_t grant = given.granted.grant;
  ASSERT_TRUE(owner_.engine->revoke(grant, net_.now_ns() + 3'600'000'000'000).ok());
  net_.run(100);
  ASSERT_TRUE(owner_.engine->revoke(grant, net_.now_ns() + 1'000'000).ok());
  net_.run(900);
  EXPECT_EQ(given.fence(), Fence::kRevoking);
  net_.run(200);
  EXPECT_EQ(given.fence(), Fence::kQuarantined);
}

/// What has come of the writer takes longer to be read than the limit allows.
TEST_F(EndsTest, MemoryThatIsNotFencedByItsLimitIsQuarantined) {
  sim::NetworkOptions options = SmallNet::software();
  options.latency_us_min = options.latency_us_max = 10'000;
  SmallNet net(options);
  net.options.heartbeat.interval_ns = 0;
  int drained_late = 0;
  for (uint64_t engine = 1; engine < 40 && drained_late < 3; engine += 2) {
    SmallNet::Node &owner = net.add(engine), &writer = net.add(engine + 1);
    const uint64_t peer = owner.engine->connect(writer.engine->address(), ~uint64_t{0}).value();
    ASSERT_TRUE(net.run(
        1e6, [&] { return owner.engine->peer_state(peer).value() == PeerState::kConnected; }));
    std::vector<std::byte> memory(512);
    const uint64_t region = owner.engine->add_region(memory).value();
    const uint64_t grant = owner.engine->grant(region, peer, 0, 512).value().grant;
    ASSERT_TRUE(owner.engine->revoke(grant, net.now_ns() + 1'000'000).ok());
    ASSERT_TRUE(owner.engine->disconnect(peer).ok());
    const auto fence = [&] { return owner.engine->fence(grant).value(); };
    drained_late += fence() == Fence::kRevoking;
    net.run(1'010);
    EXPECT_NE(fence(), Fence::kRevoking);
    EXPECT_TRUE(net.run(20'000, [&] { return fence() == Fence::kFenced; })) << "it drains";
  }
  EXPECT_EQ(drained_late, 3);
}

/// As over shm: what was posted to a process that is gone never completes.
TEST_F(EndsTest, WhatIsUnderWayToAProcessThatHasEndedFails) {
  sim::NetworkOptions options = SmallNet::software();
  options.breaks_connections = false;
  SmallNet net(options);
  net.options.heartbeat.interval_ns = 0;
  SmallNet::Node &owner = net.add(1), &writer = net.add(2);
  Granting given(net, owner, writer, 512);
  const uint64_t of_owner = net.number_of(owner, writer);
  net.pause(owner);
  const uint64_t ticket = given.write(0, 512);
  ASSERT_TRUE(writer.engine->send(of_owner, {}).ok());
  net.run(1'000);
  net.kill(owner, sim::Break::kSilent);
  net.run(1'000);
  EXPECT_EQ(writer.engine->state(ticket).value(), TicketState::kPending);
  net.ended_processes.push_back(1);
  ASSERT_TRUE(net.run(100'000, [&] { return writer.engine->next_failed() == of_owner; }));
  net.run(100);
  EXPECT_EQ(writer.engine->state(ticket).value(), TicketState::kFailed);
  EXPECT_TRUE(writer.engine->remove_region(given.from).ok());
  EXPECT_TRUE(writer.engine->disconnect(of_owner).ok());
  EXPECT_TRUE(writer.engine->routes().empty());
}

/// As over shm: nobody reads what was written to a door that is shut, and nobody says so.
TEST_F(EndsTest, WhatIsUnderWayToADoorThatIsShutFails) {
  struct Case {
    bool owner_leaves, writer_leaves;
  };
  for (const auto [owner_leaves, writer_leaves] :
       {Case{true, false}, Case{true, true}, Case{false, true}}) {
    sim::NetworkOptions options = SmallNet::software();
    options.breaks_connections = false;
    SmallNet net(options);
    net.options.heartbeat.interval_ns = 0;
    net.options.shut_ns = 1'000'000;
    SmallNet::Node &owner = net.add(1), &writer = net.add(2);
    Granting given(net, owner, writer, 512);
    const uint64_t of_owner = net.number_of(owner, writer);
    net.cut(owner, 0, sim::Break::kSilent);
    const uint64_t ticket = given.write(0, 512);
    net.run(100);
    net.mend(owner, 0);
    if (owner_leaves) {
      ASSERT_TRUE(owner.engine->disconnect(given.peer).ok());
    }
    if (writer_leaves) {
      ASSERT_TRUE(writer.engine->disconnect(of_owner).ok());
    }
    net.run(500);
    EXPECT_EQ(writer.engine->state(ticket).value(), TicketState::kPending);
    net.run(1'000);
    EXPECT_EQ(writer.engine->state(ticket).value(), TicketState::kFailed);
    EXPECT_TRUE(writer.engine->remove_region(given.from).ok());
    if (!writer_leaves) {
      EXPECT_TRUE(writer.engine->disconnect(of_owner).ok());
    }
    EXPECT_TRUE(writer.engine->routes().empty());
  }
}

TEST_F(EndsTest, WhatIsUnderWayToAPeerThatWasDisconnectedFailsAfterAWhile) {
  for (const bool is_by_connection : {true, false}) {
    sim::NetworkOptions options = SmallNet::software();
    options.breaks_connections = is_by_connection;
    SmallNet net(options);
    net.options.heartbeat.interval_ns = 0;
    net.options.farewell_ns = 3'000'000;
    SmallNet::Node &owner = net.add(1), &writer = net.add(2);
    Granting given(net, owner, writer, 512);
    net.pause(owner);
    const uint64_t ticket = given.write(0, 512);
    net.run(100);
    ASSERT_TRUE(writer.engine->disconnect(net.number_of(owner, writer)).ok());
    net.run(2'000);
    EXPECT_EQ(writer.engine->state(ticket).value(), TicketState::kPending) << "it may come back";
    net.run(2'000);
    if (!is_by_connection) {  // the process may read the source yet, when it goes on
      EXPECT_EQ(writer.engine->state(ticket).value(), TicketState::kPending);
      net.kill(owner, sim::Break::kSilent);
      net.ended_processes.push_back(1);
      net.run(100'000);
    }
    EXPECT_EQ(writer.engine->state(ticket).value(), TicketState::kFailed);
    EXPECT_TRUE(writer.engine->routes().empty());
    EXPECT_TRUE(writer.engine->remove_region(given.from).ok());
  }
}

/// Its greeting and its descriptor are read only when it has ended, and nobody says so.
TEST_F(EndsTest, AWriteForAProcessThatHadEndedBeforeItWasHeardEnds) {
  SmallNet net;
  net.options.farewell_ns = 3'000'000;
  SmallNet::Node &owner = net.add(1), &writer = net.add(2);
  const uint64_t peer = owner.engine->connect(writer.engine->address(), ~uint64_t{0}).value();
  const auto is_greeted = [&] {
    return owner.engine->peer_state(peer).value() == PeerState::kConnected;
  };
  ASSERT_TRUE(net.run(1'000, is_greeted));
  net.pause(writer);
  ASSERT_FALSE(writer.engine->find_peer(1)) << "it has heard the answer already";
  std::vector<std::byte> memory(512), source(512);
  const uint64_t region = owner.engine->add_region(memory).value();
  const Granted granted = owner.engine->grant(region, peer, 0, 512).value();
  ASSERT_TRUE(owner.engine->send(peer, encode(granted.descriptor)).ok());
  net.run(200);
  net.kill(owner, sim::Break::kSilent);
  net.resume(writer);
  std::optional<Received> order;
  ASSERT_TRUE(net.run(1'000, [&] { return (order = writer.engine->receive()).has_value(); }));
  const uint64_t target =
      writer.engine->open_target(decode_descriptor(order->payload).value()).value();
  const uint64_t from = writer.engine->add_region(source).value();
  const uint64_t ticket =
      writer.engine->write(from, target, {0, 0, 512}, {}, net.now_ns() + 1'000'000).value();
  ASSERT_TRUE(net.run(10'000, [&] { return writer.engine->next_failed() == order->peer; }));
  EXPECT_EQ(writer.engine->peer_failure(order->peer).value(), PeerFailure::kSilent);
  EXPECT_EQ(writer.engine->state(ticket).value(), TicketState::kQuarantined);
  ASSERT_TRUE(writer.engine->disconnect(order->peer).ok());
  net.run(4'000);
  EXPECT_EQ(writer.engine->state(ticket).value(), TicketState::kFailed);
  EXPECT_TRUE(writer.engine->remove_region(from).ok());
  EXPECT_TRUE(writer.engine->routes().empty());
}

}  // namespace
}  // namespace braid::fabric
