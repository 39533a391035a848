// A Hello that comes when the connection it was for has been given up.
#include <gtest/gtest.h>

#include <vector>

#include "fabric/small_net.h"

namespace braid::fabric {
namespace {

using test::SmallNet;

/// The peer has given up the connection of that Hello. Our Hello has come to its present one.
TEST(LateHelloTest, AHelloThatComesLateDoesNotKeepAnEngineFromConnecting) {
  SmallNet net;
  net.run(10);
  SmallNet::Node &late = net.add(1), &prompt = net.add(2);
  net.pause(late);
  Engine& writer = *prompt.engine;
  const uint64_t before = writer.connect(late.engine->address(), net.now_ns() + 1'000'000).value();
  ASSERT_TRUE(
      net.run(3'000, [&] { return writer.peer_state(before).value() == PeerState::kFailed; }));
  ASSERT_TRUE(writer.disconnect(before).ok());
  net.run(200);
  // Its program connects before the engine has looked at what has come meanwhile.
  const uint64_t peer = late.engine->connect(writer.address(), net.now_ns() + 20'000'000).value();
  net.resume(late);
  net.run(100'000, [&] { return late.engine->peer_state(peer).value() != PeerState::kConnecting; });
  ASSERT_EQ(late.engine->peer_state(peer).value(), PeerState::kConnected)
      << static_cast<int>(late.engine->peer_failure(peer).value());
  ASSERT_TRUE(net.run(10'000, [&] { return writer.accept().has_value(); }));

  std::vector<std::byte> memory(1000), source(1000, std::byte{9});
  const uint64_t into = late.engine->add_region(memory).value();
  const Granted granted = late.engine->grant(into, peer, 0, 1000).value();
  const uint64_t target = writer.open_target(granted.descriptor).value();
  const uint64_t from = writer.add_region(source).value();
  const uint64_t ticket =
      writer.write(from, target, {0, 0, 1000}, {}, net.now_ns() + 5'000'000).value();
  net.run(5'000, [&] { return writer.state(ticket).value() != TicketState::kPending; });
  EXPECT_EQ(writer.state(ticket).value(), TicketState::kDone);
  EXPECT_EQ(memory, source);
  ASSERT_TRUE(late.engine->send(peer, Bytes(source).first(3)).ok());
  EXPECT_TRUE(net.run(5'000, [&] { return writer.receive().has_value(); }));

  net.run(20'000);  // much longer than a peer may be silent, or a message of it be missing
  EXPECT_EQ(late.engine->peer_state(peer).value(), PeerState::kConnected);
  EXPECT_TRUE(writer.find_peer(late.engine->address().engine).has_value());
  EXPECT_FALSE(late.engine->next_failed().has_value());
}

}  // namespace
}  // namespace braid::fabric
