// Writes that complete once they are injected (Completes), while nothing has
// arrived yet.
#include <gtest/gtest.h>

#include "fabric/granting.h"

namespace braid::fabric::test {
namespace {

class InjectedTest : public testing::Test {
 protected:
  static constexpr size_t kBytes = 4096;
  static constexpr double kLandingUs = 5'000;

  static sim::NetworkOptions network() {
    sim::NetworkOptions options = SmallNet::software();
    options.lands_when_polled = false;
    options.latency_us_max = 2;
    options.landing_us_max = kLandingUs;
    return options;
  }
  /// Of which the writer hears before it has landed whole.
  static bool write_early(Granting& given, uint32_t immediate) {
    WriteOptions how{immediate, given.net.now_ns() + 60'000'000'000};
    how.completes = Completes::kInjected;
    const uint64_t ticket =
        given.writer.engine->write(given.from, given.target, {0, 0, kBytes}, how).value();
    const auto state = [&] { return given.writer.engine->state(ticket).value(); };
    EXPECT_TRUE(given.net.run(1e6, [&] { return state() == TicketState::kDone; }));
    return given.landed() < int64_t{kBytes};
  }
  static bool is_fenced(const Granting& given) { return given.fence() == Fence::kFenced; }

  SmallNet net_{network()};
  uint64_t next_engine_ = 1;
};

/// Its word that nothing is under way says nothing of bytes that it does not wait for.
TEST_F(InjectedTest, MemoryIsNotFencedByTheWordOfWhoWroteThere) {
  int early = 0;  // of which the writer heard before it had landed
  for (int turn = 0; turn < 20; ++turn) {
    SmallNet::Node &owner = net_.add(next_engine_++), &writer = net_.add(next_engine_++);
    Granting given(net_, owner, writer, kBytes);
    const uint32_t immediate = owner.engine->counters().acquire().value();
    early += write_early(given, immediate);
    ASSERT_TRUE(owner.engine->revoke(given.granted.grant, net_.now_ns() + 1'000'000'000).ok());
    net_.run(100);
    EXPECT_FALSE(is_fenced(given));
    ASSERT_TRUE(owner.engine->disconnect(given.peer).ok());
    ASSERT_TRUE(net_.run(1e6, [&] { return is_fenced(given); })) << "its door is drained";
    const std::vector<std::byte> fenced = given.memory;
    net_.run(2 * kLandingUs);
    ASSERT_EQ(given.memory, fenced);
  }
  EXPECT_GT(early, 3);
}

TEST_F(InjectedTest, WhoHasCountedWhatItAskedForNeedsNoSuchWord) {
  SmallNet::Node &owner = net_.add(1), &writer = net_.add(2);
  Granting given(net_, owner, writer, kBytes);
  const uint32_t immediate = owner.engine->counters().acquire().value();
  write_early(given, immediate);
  ASSERT_TRUE(net_.run(1e6, [&] { return owner.engine->counters().count(immediate) > 0; }));
  EXPECT_EQ(given.landed(), int64_t{kBytes});
  ASSERT_TRUE(owner.engine->revoke(given.granted.grant, net_.now_ns() + 1'000'000'000, true).ok());
  EXPECT_TRUE(net_.run(1'000, [&] { return is_fenced(given); }));
  EXPECT_EQ(owner.engine->peer_state(given.peer).value(), PeerState::kConnected);
}

}  // namespace
}  // namespace braid::fabric::test
