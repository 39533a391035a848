// Peers that are silent, end, come back, and connect anew: what the survivor sees.
#include <gtest/gtest.h>

#include <algorithm>

#include "fabric/granting.h"
#include "fabric/small_net.h"

namespace braid::fabric {
namespace {

using test::Granting;
using test::SmallNet;

class PeersTest : public testing::Test {
 protected:
  PeersTest() { net_.run(10); }

  PeerFailure why(SmallNet::Node& node, uint64_t peer) {
    return node.engine->peer_failure(peer).value();
  }
  Fence fence(uint64_t grant) { return owner_.engine->fence(grant).value(); }

  SmallNet net_;
  SmallNet::Node& owner_ = net_.add(1);
  SmallNet::Node& writer_ = net_.add(2);
  SmallNet::Node& third_ = net_.add(3);
};

TEST_F(PeersTest, WhoeverOnlyBeatsIsNotGivenUp) {
  const uint64_t peer = net_.connect(owner_, writer_);
  net_.run(100'000);
  EXPECT_EQ(owner_.engine->peer_state(peer).value(), PeerState::kConnected);
  EXPECT_FALSE(owner_.engine->next_failed());
  EXPECT_FALSE(writer_.engine->next_failed());
}

TEST_F(PeersTest, ASilentPeerIsNamedAndTheOthersGoOn) {
  const uint64_t silent = net_.connect(owner_, writer_);
  const uint64_t other = net_.connect(owner_, third_);
  std::vector<std::byte> memory(1000);
  const uint64_t region = owner_.engine->add_region(memory).value();
  const uint64_t grant = owner_.engine->grant(region, silent, 0, 1000).value().grant;
  net_.pause(writer_);
  EXPECT_FALSE(net_.run(3'500, [&] { return owner_.engine->next_failed().has_value(); }));
  std::optional<uint64_t> failed;
  ASSERT_TRUE(net_.run(3'000, [&] { return (failed = owner_.engine->next_failed()).has_value(); }));
  EXPECT_EQ(failed, silent);
  EXPECT_EQ(why(owner_, silent), PeerFailure::kSilent);
  EXPECT_EQ(fence(grant), Fence::kFenced) << "its door is shut";
  EXPECT_FALSE(owner_.engine->send(silent, {}).ok());
  EXPECT_TRUE(owner_.engine->send(other, {}).ok());
  EXPECT_TRUE(net_.run(1'000, [&] { return third_.engine->receive().has_value(); }));
  EXPECT_EQ(owner_.engine->peer_state(other).value(), PeerState::kConnected);
}

TEST_F(PeersTest, ASilentPeerThatHoldsAllRoomHoldsUpNobodyElse) {
  sim::NetworkOptions options = SmallNet::software();
  options.postings_max = 2;
  options.segments_max = 1;  // so that a write is several postings
  SmallNet net(options);
  net.options.heartbeat.interval_ns = 0;
  net.options.slicing = {64, 8};
  SmallNet::Node &writer = net.add(1), &silent = net.add(2), &other = net.add(3);
  std::vector<std::byte> source(512, std::byte{7}), lost(512), memory(512);
  const uint64_t from = writer.engine->add_region(source).value();
  const auto target_at = [&](SmallNet::Node& node, std::vector<std::byte>& bytes) {
    const uint64_t peer = net.connect(node, writer);
    const uint64_t region = node.engine->add_region(bytes).value();
    const Granted granted = node.engine->grant(region, peer, 0, bytes.size()).value();
    return writer.engine->open_target(granted.descriptor).value();
  };
  const uint64_t nowhere = target_at(silent, lost), there = target_at(other, memory);
  const auto write = [&](uint64_t target) {
    return writer.engine->write(from, target, {0, 0, 512}, {}, net.now_ns() + 5'000'000).value();
  };
  net.pause(silent);
  write(nowhere);
  net.run(100);
  const uint64_t ticket = write(there);
  net.run(4'000, [&] { return writer.engine->state(ticket).value() != TicketState::kPending; });
  EXPECT_EQ(writer.engine->state(ticket).value(), TicketState::kDone);
  EXPECT_EQ(memory, source);
}

TEST_F(PeersTest, APeerThatComesBackIsToldAndConnectsAnew) {
  const uint64_t before = net_.connect(owner_, writer_);
  const uint64_t owner_before = net_.number_of(owner_, writer_);
  std::vector<std::byte> memory(1000);
  const uint64_t region = owner_.engine->add_region(memory).value();
  const Descriptor old = owner_.engine->grant(region, before, 0, 1000).value().descriptor;
  net_.pause(writer_);
  ASSERT_TRUE(net_.run(10'000, [&] { return owner_.engine->next_failed().has_value(); }));
  net_.resume(writer_);
  std::optional<uint64_t> failed;
  ASSERT_TRUE(
      net_.run(10'000, [&] { return (failed = writer_.engine->next_failed()).has_value(); }));
  EXPECT_EQ(failed, owner_before);
  EXPECT_EQ(why(writer_, owner_before), PeerFailure::kGaveUs);

  const uint64_t again = net_.connect(writer_, owner_);
  EXPECT_EQ(writer_.engine->peer_state(again).value(), PeerState::kConnected);
  std::optional<uint64_t> accepted;
  ASSERT_TRUE(net_.run(1'000, [&] { return (accepted = owner_.engine->accept()).has_value(); }));
  EXPECT_EQ(why(owner_, before), PeerFailure::kSilent) << "the connection before stays what it was";
  EXPECT_EQ(
      writer_.engine->open_target(old).status().message(),
      "this descriptor is of an earlier connection to its owner. Ask the owner for a new one");
  const Granted granted = owner_.engine->grant(region, *accepted, 0, 1000).value();
  std::vector<std::byte> source(1000, std::byte{9});
  const uint64_t from = writer_.engine->add_region(source).value();
  const uint64_t target = writer_.engine->open_target(granted.descriptor).value();
  const uint32_t immediate = owner_.engine->counters().acquire().value();
  ASSERT_TRUE(
      writer_.engine->write(from, target, {0, 0, 1000}, immediate, net_.now_ns() + 10'000'000)
          .ok());
  ASSERT_TRUE(net_.run(5'000, [&] { return owner_.engine->counters().count(immediate) == 1; }));
  EXPECT_EQ(memory, source);
  EXPECT_TRUE(owner_.engine->disconnect(before).ok());
  EXPECT_EQ(net_.number_of(writer_, owner_), *accepted);
}

TEST_F(PeersTest, AnEngineThatWasStoppedItselfGivesNobodyUp) {
  net_.options.heartbeat.limit_ns = 100'000'000;
  SmallNet::Node& patient = net_.add(4);
  net_.connect(owner_, patient);
  net_.pause(owner_);
  net_.run(20'000);  // five times its own limit
  net_.resume(owner_);
  net_.run(20'000);
  EXPECT_FALSE(owner_.engine->next_failed());
  EXPECT_FALSE(patient.engine->next_failed());
}

TEST_F(PeersTest, WhoeverIsNotReachedOverAnyRailIsGivenUpAtOnce) {
  const uint64_t gone = net_.connect(owner_, writer_);
  net_.kill(writer_, sim::Break::kFails);
  ASSERT_TRUE(owner_.engine->send(gone, {}).ok());
  ASSERT_TRUE(net_.run(500, [&] { return owner_.engine->next_failed() == gone; }));
  EXPECT_EQ(why(owner_, gone), PeerFailure::kNetwork);
}

TEST_F(PeersTest, MessagesThatARailSwallowsAreNoBeats) {
  SmallNet net;
  net.rail_count = 2;
  net.options.credits = 64;
  SmallNet::Node &speaker = net.add(1), &listener = net.add(2);
  const uint64_t peer = net.connect(speaker, listener);
  net.cut(speaker, 0, sim::Break::kSilent);
  for (int i = 0; i < 30; ++i) {  // more often than it would beat, for twice the limit of silence
    ASSERT_TRUE(speaker.engine->send(peer, {}).ok());
    net.run(300);
  }
  EXPECT_FALSE(listener.engine->next_failed());
}

TEST_F(PeersTest, WhoWasGivenUpLearnsItAlthoughItsQuestionsAreAnswered) {
  SmallNet net;
  net.options.heartbeat.interval_ns = 0;
  SmallNet::Node &owner = net.add(1), &writer = net.add(2);
  Granting given(net, owner, writer, 512);
  const uint64_t of_owner = net.number_of(owner, writer);
  net.cut(owner, 0, sim::Break::kFails);
  ASSERT_TRUE(writer.engine->send(of_owner, {}).ok());
  ASSERT_TRUE(net.run(500, [&] { return writer.engine->next_failed() == of_owner; }));
  net.run(500);  // its farewell is lost too
  net.mend(owner, 0);
  ASSERT_TRUE(owner.engine->revoke(given.granted.grant, net.now_ns() + 1'000'000).ok());
  ASSERT_TRUE(net.run(500, [&] { return owner.engine->next_failed() == given.peer; }));
  EXPECT_EQ(why(owner, given.peer), PeerFailure::kGaveUs);
}

/// As TCP does: what breaks the connection fails the farewell as well, and a new connection works.
TEST_F(PeersTest, WhoLeavesOverABrokenConnectionSaysSoOverTheNext) {
  SmallNet net;
  net.options.heartbeat.interval_ns = 0;
  SmallNet::Node &owner = net.add(1), &writer = net.add(2);
  Granting given(net, owner, writer, 512);
  const uint64_t of_owner = net.number_of(owner, writer);
  for (const bool is_noticed : {true, false}) {
    const uint64_t of_writer = is_noticed ? given.peer : net.connect(owner, writer);
    const uint64_t it = is_noticed ? of_owner : net.number_of(owner, writer);
    net.run(1'000);  // so that the owner sends nothing that would fail too
    net.cut(owner, 0, sim::Break::kFails);
    if (is_noticed) {
      ASSERT_TRUE(writer.engine->send(it, {}).ok());
      ASSERT_TRUE(net.run(500, [&] { return writer.engine->next_failed() == it; }));
    }
    ASSERT_TRUE(writer.engine->disconnect(it).ok());
    net.run(5'000);
    net.mend(owner, 0);
    ASSERT_TRUE(net.run(100'000, [&] { return owner.engine->next_failed() == of_writer; }))
        << is_noticed;
    EXPECT_EQ(why(owner, of_writer), PeerFailure::kLeft);
    ASSERT_TRUE(owner.engine->disconnect(of_writer).ok());
    net.run(10'000);
    EXPECT_TRUE(writer.engine->peers().empty()) << "it was heard";
  }
}

TEST_F(PeersTest, WhoLeavesAPeerThatIsGoneConnectsAnewAndForgetsItInTheEnd) {
  SmallNet net;
  net.options.heartbeat.interval_ns = 0;
  SmallNet::Node &owner = net.add(1), &writer = net.add(2);
  net.connect(owner, writer);
  net.cut(owner, 0, sim::Break::kFails);
  ASSERT_TRUE(writer.engine->disconnect(net.number_of(owner, writer)).ok());
  net.run(1'000);
  EXPECT_EQ(writer.engine->peers().size(), 1U) << "its farewell is still to be heard";
  EXPECT_TRUE(writer.engine->has_messages_under_way()) << "whoever ends waits for it";
  EXPECT_TRUE(writer.engine->connect(owner.engine->address(), net.now_ns() + 1'000'000).ok());
  net.run(1'000);
  EXPECT_TRUE(writer.engine->next_failed());
  net.run(1e6 + static_cast<double>(net.options.farewell_ns) / 1000,
          [&] { return writer.engine->peers().size() == 1; });
  EXPECT_EQ(writer.engine->peers().size(), 1U) << "the failed attempt";
}

TEST_F(PeersTest, WhoLeavesSaysSoOverARailThatWorks) {
  SmallNet net;
  net.options.heartbeat.interval_ns = 0;
  net.rail_count = 2;
  SmallNet::Node &owner = net.add(1), &writer = net.add(2);
  const uint64_t of_writer = net.connect(owner, writer);
  net.run(1'000);
  for (const size_t broken : {0, 1}) {
    net.cut(owner, broken, sim::Break::kFails);
    if (broken == 1) net.mend(owner, 0);
    const uint64_t it = broken == 0 ? of_writer : net.connect(owner, writer);
    ASSERT_TRUE(writer.engine->disconnect(net.number_of(owner, writer)).ok());
    ASSERT_TRUE(net.run(100'000, [&] { return owner.engine->next_failed() == it; })) << broken;
    EXPECT_EQ(why(owner, it), PeerFailure::kLeft);
    ASSERT_TRUE(owner.engine->disconnect(it).ok());
    net.run(200'000);
    EXPECT_TRUE(writer.engine->peers().empty());
  }
}

TEST_F(PeersTest, WhoLeavesAPeerWhoseProcessHasEndedSaysNothing) {
  const uint64_t peer = net_.connect(owner_, writer_);
  net_.pause(writer_);
  ASSERT_TRUE(net_.run(10'000, [&] { return owner_.engine->next_failed() == peer; }));
  EXPECT_EQ(why(owner_, peer), PeerFailure::kSilent);
  net_.ended_processes.push_back(2);
  net_.kill(writer_, sim::Break::kFails);
  net_.run(200'000);
  ASSERT_TRUE(owner_.engine->disconnect(peer).ok());
  net_.run(1'000);
  EXPECT_TRUE(owner_.engine->peers().empty());
}

TEST_F(PeersTest, PeersThatAreGoneKeepNoOthersOut) {
  SmallNet net;
  net.options.heartbeat.interval_ns = 0;
  net.options.peers_max = 2;
  SmallNet::Node& lonely = net.add(1);
  SmallNet::Node* gone[] = {&net.add(2), &net.add(3)};
  SmallNet::Node& other = net.add(4);
  for (SmallNet::Node* node : gone) {
    const uint64_t peer = net.connect(lonely, *node);
    net.kill(*node, sim::Break::kFails);
    ASSERT_TRUE(lonely.engine->disconnect(peer).ok());
    net.run(1'000);
  }
  EXPECT_EQ(lonely.engine->peers().size(), 2U);
  EXPECT_EQ(lonely.engine->peer_state(net.connect(lonely, other)).value(), PeerState::kConnected);
}

TEST_F(PeersTest, WhoLeavesSaysSo) {
  const uint64_t peer = net_.connect(owner_, writer_);
  ASSERT_TRUE(writer_.engine->disconnect(net_.number_of(owner_, writer_)).ok());
  ASSERT_TRUE(net_.run(500, [&] { return owner_.engine->next_failed() == peer; }));
  EXPECT_EQ(why(owner_, peer), PeerFailure::kLeft);
}

TEST_F(PeersTest, AWriteToAPeerThatHasLeftIsRefused) {
  Granting given(net_, owner_, writer_, 512);
  const uint64_t of_owner = net_.number_of(owner_, writer_);
  ASSERT_TRUE(owner_.engine->disconnect(given.peer).ok());
  ASSERT_TRUE(net_.run(500, [&] { return writer_.engine->next_failed() == of_owner; }));
  const auto late = writer_.engine->write(given.from, given.target, {0, 0, 512}, {},
                                          net_.now_ns() + 1'000'000'000);
  EXPECT_EQ(late.status().message(), "the owner of this target is not connected any more");
  EXPECT_TRUE(writer_.engine->disconnect(of_owner).ok());
  net_.run(100);
  EXPECT_TRUE(writer_.engine->routes().empty());
}

/// All that was under way ends at one look, while slices of the same write wait for room.
TEST_F(PeersTest, APeerThatIsDisconnectedInTheMiddleOfAWriteIsForgottenWithItsQueue) {
  sim::NetworkOptions options;
  options.postings_max = 2;
  options.segments_max = 1;
  SmallNet net(options);
  net.options.slicing = {64, 8};
  SmallNet::Node &owner = net.add(1), &writer = net.add(2);
  Granting given(net, owner, writer, 512);
  const uint64_t ticket = given.write(0, 512);
  writer.engine->step(net.now_ns());
  ASSERT_TRUE(writer.engine->disconnect(net.number_of(owner, writer)).ok());
  writer.engine->step(net.now_ns());  // posts the farewell
  writer.is_paused = true;            // it does not look meanwhile
  net.run(1'000);
  writer.is_paused = false;
  net.run(100);
  EXPECT_EQ(writer.engine->failure(ticket), Failure::kDisconnected);
  EXPECT_TRUE(writer.engine->routes().empty());
  EXPECT_TRUE(writer.engine->remove_region(given.from).ok());
}

TEST_F(PeersTest, WritesToAPeerThatWasGivenUpAreStoppedLongBeforeTheirDeadlines) {
  sim::NetworkOptions options = SmallNet::software();
  options.postings_max = 2;
  options.segments_max = 1;
  SmallNet net(options);
  net.options.slicing = {64, 8};
  SmallNet::Node &owner = net.add(1), &writer = net.add(2);
  Granting given(net, owner, writer, 512);
  net.pause(owner);
  const uint64_t ticket = given.write(0, 512);
  ASSERT_TRUE(net.run(20'000, [&] { return writer.engine->next_failed().has_value(); }));
  EXPECT_EQ(writer.engine->failure(ticket), Failure::kDisconnected);
}

TEST_F(PeersTest, WhoWasGivenUpAndGoesOnWritesNothingIntoMemoryThatIsFenced) {
  sim::NetworkOptions options = SmallNet::software();
  options.landing_us_max = 400;
  SmallNet net(options);
  SmallNet::Node &owner = net.add(1), &writer = net.add(2);
  Granting given(net, owner, writer, 64 * 64);
  for (uint64_t at = 0; at < given.source.size(); at += 256)
    given.write(at, 256);  // each lands at a time of its own
  ASSERT_TRUE(net.run(2'000, [&] { return given.landed() > 0; }));
  net.pause(writer);
  ASSERT_LT(given.landed(), 64 * 64) << "nothing is left to land";
  ASSERT_TRUE(net.run(20'000, [&] { return given.fence() == Fence::kFenced; }));
  std::fill(given.memory.begin(), given.memory.end(), std::byte{0});
  net.resume(writer);
  net.run(10'000);
  EXPECT_EQ(given.memory, std::vector<std::byte>(given.memory.size()));
}

/// What a write had begun lies in the network or in queues still: the process's end alone is no
/// fence, the shut door is.
TEST_F(PeersTest, WhenItsProcessHasEndedQuarantinedMemoryIsFenced) {
  for (const bool is_fencing : {true, false}) {
    sim::NetworkOptions options = SmallNet::software();
    options.closing_fences = is_fencing;
    options.landing_us_max = 400;
    SmallNet net(options);
    net.options.heartbeat.interval_ns = 0;
    SmallNet::Node &owner = net.add(1), &writer = net.add(2);
    Granting given(net, owner, writer, 64 * 64);
    const size_t size_bytes = given.memory.size();
    given.write(0, size_bytes);
    ASSERT_TRUE(net.run(2'000, [&] { return given.landed() > 0; }));
    ASSERT_TRUE(owner.engine->revoke(given.granted.grant, net.now_ns() + 1).ok());
    net.pause(writer);
    net.run(20, [&] { return given.fence() != Fence::kRevoking; });
    EXPECT_EQ(given.fence(), Fence::kQuarantined);
    EXPECT_EQ(owner.engine->quarantined_bytes(), size_bytes);
    net.kill(writer, sim::Break::kSilent);
    net.ended_processes.push_back(2);
    net.run(100'000, [&] { return owner.engine->next_failed() == given.peer; });
    EXPECT_EQ(owner.engine->peer_failure(given.peer).value(), PeerFailure::kEnded);
    EXPECT_EQ(given.fence(), is_fencing ? Fence::kFenced : Fence::kQuarantined);
    EXPECT_EQ(owner.engine->quarantined_bytes(), is_fencing ? 0 : size_bytes);
    if (!is_fencing) continue;
    std::fill(given.memory.begin(), given.memory.end(), std::byte{0});
    net.run(10'000);
    EXPECT_EQ(given.memory, std::vector<std::byte>(size_bytes));
    EXPECT_TRUE(owner.engine->forget_grant(given.granted.grant).ok());
    EXPECT_TRUE(owner.engine->remove_region(given.region).ok());
  }
}

}  // namespace
}  // namespace braid::fabric
