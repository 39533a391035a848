// A peer that makes up its own messages, on a simulated network.
#pragma once

#include <deque>
#include <vector>

#include "fabric/small_net.h"

namespace braid::fabric::test {

class Liar {
 public:
  static constexpr uint64_t kEngine = 666;
  static constexpr uint64_t kSession = 77;

  Liar(SmallNet& net, uint64_t place, SmallNet::Node& victim, Secret secret = {})
      : wire_(net.add_wire(place)), secret_(std::move(secret)), victim_(&victim) {
    region_ = wire_->add_region(memory_, Access::kLocal).value();
    peer_ = wire_->connect(victim.engine->address().rails[0].name).value();
    for (size_t i = 0; i < kBuffers; ++i) (void)wire_->post_receive(region_, buffer(i), i);
  }

  /// As the engine at this place would say.
  Address address() const {
    Address address{kEngine, victim_->engine->address().slicing, {}};
    const Bytes name = wire_->address();
    address.rails.push_back({"simulated", {name.begin(), name.end()}, {0, 1}});
    return address;
  }
  Message hello(uint64_t engine = kEngine) const {
    Address mine = address();
    mine.engine = engine;
    Message message{engine, victim_->engine->address().engine, Hello{mine, 4}};
    message.session.from = kSession;
    return message;
  }
  /// The next message of the connection, once `victims_session` is known.
  Message next(decltype(Message::body) body) {
    Message message{kEngine, victim_->engine->address().engine, std::move(body)};
    message.session = {kSession, victims_session, ++sequence_};
    return message;
  }

  void send(const Message& message) { send_bytes(encode(message, secret_)); }
  /// At most kMessageBytesMax; waits for room.
  bool send_bytes(const std::vector<std::byte>& bytes) {
    std::copy(bytes.begin(), bytes.end(), memory_.begin());
    return wire_->post_send(peer_, region_, Bytes(memory_).first(bytes.size()), kBuffers);
  }
  /// To where messages go, not through the door that it was given. The memory has room for a
  /// message.
  bool write_beside_the_door(RemoteRange target) {
    Write write;
    write.peer = peer_;
    write.region = region_;
    write.source = Bytes(memory_).first(kMessageBytesMax);
    write.target_address = target.base;
    write.target_key = target.key;
    write.context = kWrite;
    return wire_->post_write(write);
  }
  /// What has come since the last look.
  std::vector<Message> look() {
    std::vector<Message> come;
    Completion completions[16];
    for (size_t i = 0, count = wire_->poll(completions); i < count; ++i) {
      if (completions[i].event == Event::kPosted && completions[i].context == kWrite)
        ++(completions[i].ok ? landed : refused);
      else if (completions[i].event == Event::kPosted)
        ++sent;
      if (completions[i].event != Event::kReceived) continue;
      const size_t index = completions[i].context;
      auto message = decode_message(buffer(index).first(completions[i].size_bytes), secret_);
      if (message.ok()) come.push_back(std::move(message).value());
      (void)wire_->post_receive(region_, buffer(index), index);
    }
    return come;
  }
  /// Connects as an engine would.
  bool shake_hands(SmallNet& net) {
    send(hello());
    const bool is_welcome = net.run(10'000, [&] {
      for (const Message& message : look())
        if (message.to == kEngine && std::holds_alternative<Welcome>(message.body))
          victims_session = message.session.from;
      return victims_session != 0;
    });
    if (!is_welcome) return false;
    send(next(Beat{}));
    return net.run(10'000, [&] { return victim_->engine->find_peer(kEngine).has_value(); });
  }

  Domain& wire() { return *wire_; }

  uint64_t victims_session = 0;
  uint64_t sent = 0;
  uint64_t landed = 0;  // of its writes
  uint64_t refused = 0;

 private:
  static constexpr size_t kBuffers = 16;
  static constexpr uint64_t kWrite = kBuffers + 1;
  MutableBytes buffer(size_t index) {
    return MutableBytes(memory_).subspan((index + 1) * kMessageBytesMax, kMessageBytesMax);
  }

  // The wire, which reads it until it is closed, goes before it.
  std::vector<std::byte> memory_ = std::vector<std::byte>((kBuffers + 1) * kMessageBytesMax);
  std::unique_ptr<Domain> wire_;
  Secret secret_;
  SmallNet::Node* victim_;
  uint32_t region_ = 0;
  uint32_t peer_ = 0;
  uint64_t sequence_ = 0;
};

}  // namespace braid::fabric::test
