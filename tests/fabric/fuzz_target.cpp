// One input: bytes that go to every parser, and as a message to a live engine, sealed anew if the
// first byte says so (as somebody would who has the secret). The engine has to go on: now and then
// it is asked to take a message of an honest peer.
#include <cstdio>
#include <cstdlib>

#include "fabric/liar.h"

namespace {

using namespace braid::fabric;
using test::Liar;
using test::SmallNet;

struct Stage {
  Stage() {
    net.options.peers_max = 64;
    net.options.newcomers_max = 16;
    net.options.handshake_ns = 1'000'000;
    net.options.heartbeat.interval_ns = 0;
    owner = &net.add(1);
    honest = &net.add(2);
    peer = net.connect(*honest, *owner);
    liar = std::make_unique<Liar>(net, 50, *owner);
    if (!liar->shake_hands(net)) fail("the liar is not even let in");
  }
  static void fail(const char* what) {
    std::fprintf(stderr, "fuzz: %s\n", what);
    std::abort();
  }
  void check_honest() {
    while (owner->engine->receive()) {
    }
    const std::vector<std::byte> message{std::byte{1}, std::byte{2}};
    if (!honest->engine->send(peer, message).ok())
      fail("the honest peer is not connected any more");
    const bool has_come = net.run(10'000, [&] {
      const auto received = owner->engine->receive();
      return received && received->payload == message;
    });
    if (!has_come) fail("a message of the honest peer does not arrive");
  }

  SmallNet net;
  SmallNet::Node* owner = nullptr;
  SmallNet::Node* honest = nullptr;
  uint64_t peer = 0;
  std::unique_ptr<Liar> liar;
  uint64_t inputs = 0;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static Stage stage;
  if (size == 0 || size > kMessageBytesMax) return 0;
  const bool is_sealed_anew = data[0] != 0;
  std::vector<std::byte> bytes(size - 1);
  for (size_t i = 1; i < size; ++i) bytes[i - 1] = std::byte{data[i]};
  if (is_sealed_anew && bytes.size() > kSealBytes) {
    const size_t body_bytes = bytes.size() - kSealBytes;
    const Seal seal = Secret().seal(Bytes(bytes).first(body_bytes));
    std::copy(seal.begin(), seal.end(), bytes.begin() + static_cast<std::ptrdiff_t>(body_bytes));
  }
  Engine& owner = *stage.owner->engine;
  if (const auto descriptor = decode_descriptor(bytes); descriptor.ok())
    (void)owner.open_target(descriptor.value());
  if (const auto address = decode_address(bytes); address.ok())
    if (const auto peer = owner.connect(address.value(), stage.net.now_ns() + 1); peer.ok())
      (void)owner.disconnect(peer.value());
  (void)decode_message(bytes);
  const uint64_t sent = stage.liar->sent;
  if (!bytes.empty() && stage.liar->send_bytes(bytes))
    stage.net.run(50, [&] { return (stage.liar->look(), stage.liar->sent > sent); });
  while (const auto failed = owner.next_failed()) (void)owner.disconnect(*failed);
  if (++stage.inputs % 1000 == 0) stage.check_honest();
  return 0;
}
