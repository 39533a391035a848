// Peers that lie: another secret, messages that are repeated, made up or too many, an old version.
#include <gtest/gtest.h>

#include "fabric/liar.h"
#include "fabric/order.h"

namespace braid::fabric {
namespace {

using test::Liar;
using test::SmallNet;

Secret secret_of(int byte) {
  return Secret::of(std::vector<std::byte>(32, static_cast<std::byte>(byte))).value();
}

TEST(Lies, AnotherSecretConnectsToNobodyAndIsCounted) {
  SmallNet net;
  net.options.secret = secret_of(1);
  SmallNet::Node& owner = net.add(1);
  SmallNet::Node& friendly = net.add(2);
  net.options.secret = secret_of(2);
  SmallNet::Node& other = net.add(3);
  net.options.secret = {};
  SmallNet::Node& without = net.add(4);
  EXPECT_EQ(owner.engine->peer_state(net.connect(owner, friendly)).value(), PeerState::kConnected);
  uint64_t counted = 0;
  for (SmallNet::Node* stranger : {&other, &without}) {
    const uint64_t peer =
        stranger->engine->connect(owner.engine->address(), net.now_ns() + 3'000'000).value();
    ASSERT_TRUE(net.run(10'000, [&] { return stranger->engine->next_failed() == peer; }));
    EXPECT_EQ(stranger->engine->peer_failure(peer).value(), PeerFailure::kNoAnswer);
    EXPECT_EQ(owner.engine->statistics().unauthenticated, ++counted);
  }
  EXPECT_FALSE(owner.engine->find_peer(3));
  EXPECT_FALSE(owner.engine->find_peer(4));
}

TEST(Lies, ARepeatedMessageCountsOnce) {
  SmallNet net;
  net.options.secret = secret_of(1);
  SmallNet::Node& owner = net.add(1);
  Liar liar(net, 50, owner, secret_of(1));
  ASSERT_TRUE(liar.shake_hands(net));
  const Message message = liar.next(Data{{std::byte{5}}});
  liar.send(message);
  EXPECT_TRUE(net.run(1'000, [&] { return owner.engine->receive().has_value(); }));
  liar.send(message);
  EXPECT_TRUE(net.run(1'000, [&] { return owner.engine->statistics().replayed == 1; }));
  EXPECT_FALSE(owner.engine->receive());
}

TEST(Lies, ARecordedHelloLeadsNowhereAndIsForgotten) {
  SmallNet net;
  net.options.newcomers_max = 8;
  net.options.handshake_ns = 2'000'000;
  SmallNet::Node& owner = net.add(1);
  Liar liar(net, 50, owner);
  for (uint64_t engine = 100; engine < 120; ++engine) {
    liar.send(liar.hello(engine));
    net.run(50);
    liar.look();
  }
  net.run(200);
  EXPECT_FALSE(owner.engine->accept());
  EXPECT_FALSE(owner.engine->find_peer(100));
  EXPECT_EQ(owner.engine->statistics().refused, 12u) << "beyond the limit";
  net.run(5'000);
  EXPECT_TRUE(liar.shake_hands(net)) << "there is room again";
}

/// The owner finds that when it answers the Hello.
TEST(Lies, AHelloWhoseDoorLeadsNowhereIsNotWelcome) {
  SmallNet net;
  net.options.newcomers_max = 2;
  SmallNet::Node& owner = net.add(1);
  Liar liar(net, 50, owner);
  for (uint64_t engine = 100; engine < 110; ++engine) {
    Message hello = liar.hello(engine);
    std::get<Hello>(hello.body).doors = {{std::vector(3, std::byte{1}), {}}};
    liar.send(hello);
    net.run(1'000);
    for (const Message& answer : liar.look())
      EXPECT_FALSE(std::holds_alternative<Welcome>(answer.body)) << engine;
  }
  EXPECT_EQ(owner.engine->statistics().refused, 0u) << "nobody of them is kept";
  EXPECT_FALSE(owner.engine->accept());
  EXPECT_TRUE(liar.shake_hands(net));
}

TEST(Lies, MessagesWithoutCreditAreDropped) {
  SmallNet net;
  SmallNet::Node& owner = net.add(1);
  Liar liar(net, 50, owner);
  ASSERT_TRUE(liar.shake_hands(net));
  for (int i = 0; i < 20; ++i) {
    liar.send(liar.next(Data{{std::byte{5}}}));
    net.run(50);
  }
  EXPECT_EQ(owner.engine->statistics().over_credit, 20u - net.options.credits);
}

/// doors_test.cpp has the same on libfabric.
TEST(Lies, AKeyOpensNothingBesideTheDoorThatItWasGrantedFor) {
  SmallNet net;
  SmallNet::Node& owner = net.add(1);
  Liar liar(net, 50, owner);
  ASSERT_TRUE(liar.shake_hands(net));
  std::vector<std::byte> memory(kMessageBytesMax, std::byte{9});
  const uint64_t peer = *owner.engine->find_peer(Liar::kEngine);
  const uint64_t region = owner.engine->add_region(memory).value();
  const Granted granted = owner.engine->grant(region, peer, 0, memory.size()).value();
  ASSERT_TRUE(liar.write_beside_the_door(granted.descriptor.rails[0]));
  EXPECT_TRUE(net.run(1'000, [&] {
    liar.look();
    return liar.refused == 1;
  }));
  EXPECT_EQ(memory, std::vector<std::byte>(memory.size(), std::byte{9}));
}

TEST(Lies, WhoAsksWithoutEndAndTakesNoAnswerIsGivenUp) {
  SmallNet net;
  net.options.queued_max = 100;
  SmallNet::Node& owner = net.add(1);
  Liar liar(net, 50, owner);
  ASSERT_TRUE(liar.shake_hands(net));
  const uint64_t peer = *owner.engine->find_peer(Liar::kEngine);
  for (uint64_t i = 0; i < 200 && owner.engine->peer_state(peer).ok(); ++i) {
    liar.send(liar.next(Revoke{1 + 2 * i, 0}));
    net.run(30);
    if (owner.engine->peer_state(peer).value() == PeerState::kFailed) break;
  }
  EXPECT_EQ(owner.engine->peer_failure(peer).value(), PeerFailure::kTooMuch);
}

TEST(Lies, CreditsWithoutEndFillNoMemory) {
  SmallNet net;
  SmallNet::Node& owner = net.add(1);
  Liar liar(net, 50, owner);
  ASSERT_TRUE(liar.shake_hands(net));
  liar.send(liar.next(Credit{~uint32_t{0}}));
  net.run(1'000);  // and takes nothing
  const uint64_t peer = *owner.engine->find_peer(Liar::kEngine);
  size_t sent = 0;
  while (sent < 10'000 && owner.engine->send(peer, {}).ok()) ++sent;
  EXPECT_GT(sent, 16u);
  EXPECT_LE(sent, 256u);
  EXPECT_EQ(owner.engine->peer_state(peer).value(), PeerState::kConnected);
}

/// As when one of two rails is silent for a while.
TEST(Lies, AMessageThatManyOvertakeIsTakenOnce) {
  SmallNet net;
  net.options.heartbeat.interval_ns = 0;
  SmallNet::Node& owner = net.add(1);
  Liar liar(net, 50, owner);
  ASSERT_TRUE(liar.shake_hands(net));
  net.run(1'000);
  (void)liar.look();  // its greetings have gone
  const auto deliver = [&](const Message& message) {
    const uint64_t sent = liar.sent;
    liar.send(message);
    ASSERT_TRUE(net.run(1'000, [&] {
      liar.look();
      return liar.sent > sent;
    }));
  };
  const Message late = liar.next(Data{{std::byte{9}}});
  for (size_t i = 0; i < net.options.queued_max; ++i) deliver(liar.next(Beat{}));
  for (int i = 0; i < 2; ++i) deliver(late);
  const auto received = owner.engine->receive();
  ASSERT_TRUE(received) << "it is lost";
  EXPECT_EQ(received->payload, std::vector{std::byte{9}});
  EXPECT_FALSE(owner.engine->receive());
  EXPECT_EQ(owner.engine->statistics().replayed, 1u);
}

/// Somebody recorded this from version 1; it is answered in version 1.
TEST(Lies, TheVersionBeforeIsSpokenToWhoeverSpeaksIt) {
  SmallNet net;
  SmallNet::Node& owner = net.add(42);
  Liar old(net, 7, owner);
  old.send_bytes(test::from_hex(test::kHelloOfVersion1));
  std::vector<Message> come;
  ASSERT_TRUE(net.run(5'000, [&] { return !(come = old.look()).empty(); }));
  Message welcome{42, 0x1122334455667788, Welcome{owner.engine == nullptr ? 0 : 16u}};
  welcome.version = 1;
  EXPECT_EQ(come[0], welcome);
  const auto peer = owner.engine->accept();
  ASSERT_TRUE(peer);
  Message data{0x1122334455667788, 42, Data{{std::byte{9}}}};
  data.version = 1;
  old.send(data);
  std::optional<Received> received;
  ASSERT_TRUE(net.run(5'000, [&] { return (received = owner.engine->receive()).has_value(); }));
  EXPECT_EQ(received->peer, *peer);
  std::vector<std::byte> memory(100);
  const uint64_t region = owner.engine->add_region(memory).value();
  EXPECT_EQ(owner.engine->grant(region, *peer, 0, 100).value().descriptor.version, 1);
}

/// It knows of writes with one slice only.
TEST(Lies, TheVersionBeforeGetsEachPageAlone) {
  constexpr uint64_t kOld = 0x1122334455667788, kPage = 64;
  SmallNet net;
  SmallNet::Node& node = net.add(42);
  Liar old(net, 7, node);
  old.send_bytes(test::from_hex(test::kHelloOfVersion1));
  ASSERT_TRUE(net.run(5'000, [&] { return node.engine->accept().has_value(); }));
  std::vector<std::byte> source(3 * kPage, std::byte{5}), target(3 * kPage);
  const uint32_t into = old.wire().add_region(target, Access::kRemoteWrite).value();
  Descriptor descriptor;
  descriptor.owner = kOld;
  descriptor.writer = 42;
  descriptor.grant = 1;
  descriptor.size_bytes = target.size();
  descriptor.rails = {old.wire().remote_range(into)};
  descriptor.version = 1;
  const Pages pages{{0, 1, 2}, kPage, 0};
  const auto opened = node.engine->open_target(descriptor);
  ASSERT_TRUE(opened.ok()) << opened.status().message();
  const auto region = node.engine->add_region(source).value();
  ASSERT_TRUE(node.engine
                  ->write_pages(region, opened.value(), kPage, pages, pages, 12,
                                net.now_ns() + 1'000'000'000)
                  .ok());
  std::vector<uint32_t> slices;
  net.run(5'000, [&] {
    Completion completions[16];
    for (size_t i = 0, count = old.wire().poll(completions); i < count; ++i)
      if (completions[i].event == Event::kImmediate) slices.push_back(completions[i].slices);
    return slices.size() == 3;
  });
  EXPECT_EQ(slices, (std::vector<uint32_t>{1, 1, 1}));
  EXPECT_EQ(target, source);
}

TEST(Lies, WithASecretTheVersionBeforeIsRefused) {
  SmallNet net;
  net.options.secret = secret_of(1);
  SmallNet::Node& owner = net.add(42);
  Liar old(net, 7, owner);
  old.send_bytes(test::from_hex(test::kHelloOfVersion1));
  EXPECT_TRUE(net.run(5'000, [&] { return owner.engine->statistics().unauthenticated == 1; }));
  EXPECT_FALSE(owner.engine->accept());
}

}  // namespace
}  // namespace braid::fabric
