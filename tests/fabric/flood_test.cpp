// A stranger that posts one broken message after the other at an engine, on every kind of wire:
// each is counted, nothing is kept of it, and a peer writes as before.
#include <gtest/gtest.h>
#include <malloc.h>

#include <algorithm>
#include <array>
#include <functional>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "fabric/engine.h"
#include "fabric/wires.h"

namespace braid::fabric {
namespace {

using test::some_bytes;

constexpr uint64_t kMessages = 50'000;
constexpr uint64_t kWarmUp = 5'000;         // after which nothing is new to the provider
constexpr uint64_t kMessagesOfWrite = 500;  // a write of the peer's for so many
constexpr size_t kWriteBytes = 100'000;

/// Knows the engine's address, and sends what no engine sends.
class Stranger {
 public:
  Stranger(std::unique_ptr<Domain> wire, const Address& victim, uint64_t seed)
      : random_(seed), wire_(std::move(wire)) {
    region_ = wire_->add_region(memory_, Access::kLocal).value();
    peer_ = wire_->connect(victim.rails.front().name).value();
    Message hello{666, victim.engine, Hello{victim, 4}};
    whole_ = encode(hello);
    hello.to = victim.engine + 1;
    to_another_ = encode(hello);
    for (size_t place = 0; place < kPlaces; ++place) free_.push_back(place);
  }

  /// As many as there is room for, up to `all` of them.
  void post(uint64_t all) {
    while (posted_ < all && !free_.empty()) {
      const std::vector<std::byte> bytes = broken();
      const MutableBytes place =
          MutableBytes(memory_).subspan(free_.back() * kMessageBytesMax, bytes.size());
      std::copy(bytes.begin(), bytes.end(), place.begin());
      if (!wire_->post_send(peer_, region_, place, free_.back())) break;
      free_.pop_back();
      ++posted_;
    }
    std::array<Completion, 16> completions;
    for (size_t i = 0, count = wire_->poll(completions); i < count; ++i) {
      if (completions[i].event != Event::kPosted) continue;
      free_.push_back(completions[i].context);
      delivered_ += completions[i].ok ? 1 : 0;
    }
  }
  uint64_t posted() const { return posted_; }
  uint64_t delivered() const { return delivered_; }
  bool has_ended() const { return free_.size() == kPlaces; }

 private:
  static constexpr size_t kPlaces = 32;

  uint64_t below(uint64_t limit) { return random_() % limit; }
  std::vector<std::byte> broken() {
    std::vector<std::byte> bytes = whole_;
    switch (posted_ % 4) {
      case 0:  // noise
        bytes.resize(1 + below(kMessageBytesMax));
        for (std::byte& byte : bytes) byte = static_cast<std::byte>(random_());
        return bytes;
      case 1: bytes.resize(1 + below(whole_.size() - 1)); return bytes;
      case 2: bytes[below(bytes.size())] ^= static_cast<std::byte>(1 << below(8)); return bytes;
      default: return to_another_;
    }
  }

  std::mt19937_64 random_;
  std::vector<std::byte> memory_ = std::vector<std::byte>(kPlaces * kMessageBytesMax);
  std::unique_ptr<Domain> wire_;
  uint32_t region_ = 0, peer_ = 0;
  std::vector<std::byte> whole_, to_another_;
  std::vector<size_t> free_;
  uint64_t posted_ = 0, delivered_ = 0;
};

uint64_t allocated_bytes() {
  const struct mallinfo2 memory = mallinfo2();
  return memory.uordblks + memory.hblkhd;
}

class FloodTest : public testing::TestWithParam<test::WireKind> {
 protected:
  void SetUp() override {
    if (GetParam().is_fake) GTEST_SKIP() << "a fake, whose speed says nothing";
    wire_ = GetParam().make();
    owner_ = open(0, 101);
    writer_ = open(1, 102);
    to_writer_ = owner_->connect(writer_->address(), deadline()).value();
    ASSERT_TRUE(wait([&] { return is_connected() && writer_->find_peer(101); }));
    const uint64_t region = owner_->add_region(memory_).value();
    const Granted granted = owner_->grant(region, to_writer_, 0, memory_.size()).value();
    target_ = writer_->open_target(granted.descriptor).value();
    from_ = writer_->add_region(source_).value();
  }
  std::unique_ptr<Engine> open(int side, uint64_t engine) {
    EngineOptions options;
    options.engine = engine;
    std::vector<std::unique_ptr<Domain>> rails;
    rails.push_back(wire_->open(side));
    return Engine::open(std::move(rails), options).value();
  }
  uint64_t deadline() { return wire_->now_ns() + 120'000'000'000; }
  bool is_connected() { return owner_->peer_state(to_writer_).value() == PeerState::kConnected; }
  void step() {
    owner_->step(wire_->now_ns());
    writer_->step(wire_->now_ns());
    wire_->pass_time();
  }
  bool wait(const std::function<bool()>& until) {
    const uint64_t end_ns = deadline();
    while (!until() && wire_->now_ns() < end_ns) step();
    return until();
  }
  /// The writer's next write, once the last one has ended, which is verified.
  void write(uint64_t messages) {
    if (ticket_ && writer_->state(*ticket_).value() == TicketState::kPending) return;
    if (ticket_) {
      ASSERT_EQ(writer_->state(*ticket_).value(), TicketState::kDone);
      ASSERT_TRUE(memory_ == source_) << "after " << writes_ << " writes";
      writer_->forget(*ticket_);
      ticket_.reset();
    }
    if (messages < writes_ * kMessagesOfWrite) return;
    const auto bytes = some_bytes(kWriteBytes, static_cast<uint32_t>(++writes_));
    std::copy(bytes.begin(), bytes.end(), source_.begin());  // which stays where it is
    ticket_ = writer_->write(from_, target_, {0, 0, kWriteBytes}, {}, deadline()).value();
  }
  /// The writer writes meanwhile.
  void flood(Stranger& stranger, uint64_t messages) {
    ASSERT_TRUE(wait([&] {
      stranger.post(messages);
      write(stranger.posted());
      const bool has_ended = stranger.posted() == messages && stranger.has_ended();
      return HasFatalFailure() || (has_ended && !ticket_);
    })) << stranger.posted()
        << " messages, " << writes_ << " writes";
  }
  uint64_t counted() const {
    return owner_->statistics().malformed + owner_->statistics().misdirected;
  }

  std::unique_ptr<test::Wire> wire_;
  std::vector<std::byte> memory_ = std::vector<std::byte>(kWriteBytes), source_ = memory_;
  std::unique_ptr<Engine> owner_, writer_;
  uint64_t to_writer_ = 0, target_ = 0, from_ = 0, writes_ = 0;
  std::optional<uint64_t> ticket_;
};

TEST_P(FloodTest, BrokenMessagesAreCountedAndAPeerWritesAsBefore) {
  const uint64_t seed = std::random_device()();
  SCOPED_TRACE("seed " + std::to_string(seed));
  Stranger stranger(wire_->open(1), owner_->address(), seed);
  ASSERT_NO_FATAL_FAILURE(flood(stranger, kWarmUp));
  const uint64_t before_bytes = allocated_bytes();
  const uint64_t before_ns = wire_->now_ns();
  ASSERT_NO_FATAL_FAILURE(flood(stranger, kMessages));
  const double seconds = static_cast<double>(wire_->now_ns() - before_ns) / 1e9;
  EXPECT_LT(allocated_bytes(), before_bytes + (256 << 10));
  EXPECT_EQ(stranger.delivered(), kMessages);
  EXPECT_TRUE(wait([&] { return counted() == kMessages; })) << counted();
  EXPECT_GE(owner_->statistics().misdirected, kMessages / 4);
  EXPECT_TRUE(is_connected());
  EXPECT_GE(writes_, kMessages / kMessagesOfWrite);
  RecordProperty("messages_a_second", static_cast<int>((kMessages - kWarmUp) / seconds));
}

INSTANTIATE_TEST_SUITE_P(Wires, FloodTest, testing::ValuesIn(test::wire_kinds()),
                         test::name_of_wire);

}  // namespace
}  // namespace braid::fabric
