// Rails that break, come back, and are retired: on every kind of wire.
#include <gtest/gtest.h>

#include <cstring>
#include <numeric>
#include <stdexcept>

#include "fabric/engine.h"
#include "fabric/wires.h"

namespace braid::fabric {
namespace {

using test::some_bytes;

constexpr uint64_t kSecondNs = 1'000'000'000;
constexpr int kStepsMax = 5'000'000;
constexpr size_t kRails = 2;

/// One engine writes into the memory of another, over two rails.
class RailsTest : public testing::TestWithParam<test::WireKind> {
 protected:
  void SetUp() override {
    wire_ = GetParam().make();
    owner_ = open(0, 101);
    writer_ = open(1, 102);
    const uint64_t peer = owner_->connect(writer_->address(), deadline()).value();
    const auto is_connected = [&] {
      return writer_->find_peer(101) && owner_->peer_state(peer).value() == PeerState::kConnected;
    };
    ASSERT_TRUE(wait(is_connected));
    owners_number_ = *writer_->find_peer(101);
    const uint64_t region = owner_->add_region(memory_).value();
    const Granted granted = owner_->grant(region, peer, 0, memory_.size()).value();
    target_ = writer_->open_target(granted.descriptor).value();
    source_region_ = writer_->add_region(source_).value();
  }

  std::unique_ptr<Engine> open(int side, uint64_t engine) {
    EngineOptions options;
    options.engine = engine;
    std::vector<std::unique_ptr<Domain>> domains;
    for (size_t i = 0; i < kRails; ++i) domains.push_back(wire_->open(side));
    return Engine::open(std::move(domains), options).value();
  }
  uint64_t deadline() { return wire_->now_ns() + 20 * kSecondNs; }
  bool wait(const std::function<bool()>& until) {
    for (test::Patience patience(kStepsMax); !patience.is_over();) {
      if (until()) return true;
      owner_->step(wire_->now_ns());
      writer_->step(wire_->now_ns());
      wire_->pass_time();
    }
    return until();
  }

  /// Everything, with new bytes; kDone means that the memory has them.
  TicketState write_all(RailRange rails = {}) {
    const auto bytes = some_bytes(source_.size(), ++writes_);
    std::copy(bytes.begin(), bytes.end(), source_.begin());
    std::fill(memory_.begin(), memory_.end(), std::byte{0});
    const uint32_t immediate = owner_->counters().acquire().value();
    const uint64_t ticket =
        writer_
            ->write(source_region_, target_, {0, 0, source_.size()}, immediate, deadline(), rails)
            .value();
    EXPECT_TRUE(wait([&] { return writer_->state(ticket).value() != TicketState::kPending; }));
    const TicketState end = writer_->state(ticket).value();
    writer_->forget(ticket);
    if (end != TicketState::kDone) return end;
    const uint64_t expected = immediates_of_write(source_.size());
    EXPECT_TRUE(wait([&] { return owner_->counters().count(immediate) == expected; }));
    EXPECT_EQ(std::memcmp(memory_.data(), source_.data(), source_.size()), 0);
    return end;
  }
  RailState rail(size_t index) {
    for (const RouteStatistics& route : writer_->routes())
      if (route.peer == owners_number_ && route.rail == index) return route.state;
    throw std::runtime_error("the owner is not known");
  }
  /// TCP connects when it is first written to, and other rails take the slices meanwhile.
  void write_until_all_rails_carry() {
    const auto is_idle = [&] { return bytes_over(0) == 0 || bytes_over(1) == 0; };
    for (int i = 0; i < 100 && is_idle(); ++i) ASSERT_EQ(write_all(), TicketState::kDone);
    ASSERT_FALSE(is_idle());
  }
  uint64_t failures_over(size_t index) {
    uint64_t failures = 0;
    for (const RouteStatistics& route : writer_->routes())
      if (route.rail == index) failures += route.failures;
    return failures;
  }
  uint64_t bytes_over(size_t index) {
    uint64_t bytes = 0;
    for (const RouteStatistics& route : writer_->routes())
      if (route.rail == index) bytes += route.bytes;
    return bytes;
  }

  std::vector<std::byte> memory_ = std::vector<std::byte>(6'000'000);
  std::vector<std::byte> source_ = std::vector<std::byte>(6'000'000);
  std::unique_ptr<test::Wire> wire_;
  std::unique_ptr<Engine> owner_;
  std::unique_ptr<Engine> writer_;
  uint64_t owners_number_ = 0, target_ = 0, source_region_ = 0;
  uint32_t writes_ = 0;
};

TEST_P(RailsTest, ABrokenRailIsLeftAloneUntilItWorksAgain) {
  write_until_all_rails_carry();
  if (!wire_->break_rail(0, 1)) GTEST_SKIP() << "nothing breaks a rail of this wire";
  // What notices may fail, but only that.
  for (int i = 0; i < 100 && failures_over(1) == 0; ++i) write_all();
  for (int i = 0; i < 3; ++i) EXPECT_EQ(write_all(), TicketState::kDone) << "over the other rail";
  EXPECT_EQ(rail(0), RailState::kUp);
  wire_->mend_rail(0, 1);
  ASSERT_TRUE(wait([&] { return rail(1) == RailState::kUp; })) << "a probe finds it well";
  const uint64_t before = bytes_over(1);
  for (int i = 0; i < 100 && bytes_over(1) == before; ++i)
    EXPECT_EQ(write_all(), TicketState::kDone);
  EXPECT_GT(bytes_over(1), before);
}

TEST_P(RailsTest, ARetiredRailCarriesNothingUntilItIsRestored) {
  write_until_all_rails_carry();
  ASSERT_TRUE(writer_->retire_rail(0).ok()) << "the one with the messages";
  EXPECT_EQ(rail(0), RailState::kRetired);
  const uint64_t before = bytes_over(0);
  EXPECT_EQ(write_all(), TicketState::kDone);
  EXPECT_EQ(bytes_over(0), before);
  EXPECT_EQ(writer_->retire_rail(1).message(),
            "rail 1 is the last in use. Restore another one first");
  EXPECT_EQ(writer_->retire_rail(2).message(), "there is no rail 2: this engine has 2");
  ASSERT_TRUE(writer_->send(owners_number_, some_bytes(10, 1)).ok());
  EXPECT_TRUE(wait([&] { return owner_->receive().has_value(); })) << "messages go on";
  ASSERT_TRUE(writer_->restore_rail(0).ok());
  ASSERT_TRUE(wait([&] { return rail(0) == RailState::kUp; }));
  for (int i = 0; i < 100 && bytes_over(0) == before; ++i)
    EXPECT_EQ(write_all(), TicketState::kDone);
  EXPECT_GT(bytes_over(0), before);
}

TEST_P(RailsTest, APeerLeavesARetiredRailAloneToo) {
  write_until_all_rails_carry();
  ASSERT_TRUE(owner_->retire_rail(0).ok()) << "the one with the messages";
  ASSERT_TRUE(wait([&] { return rail(0) == RailState::kRetired; })) << "the writer has heard it";
  const uint64_t before = bytes_over(0);
  EXPECT_EQ(write_all(), TicketState::kDone);
  EXPECT_EQ(bytes_over(0), before);
  // The last word counts, whichever comes first.
  ASSERT_TRUE(owner_->restore_rail(0).ok());
  ASSERT_TRUE(owner_->retire_rail(0).ok());
  ASSERT_TRUE(owner_->restore_rail(0).ok());
  ASSERT_TRUE(wait([&] { return rail(0) == RailState::kUp; }));
  for (int i = 0; i < 100 && bytes_over(0) == before; ++i)
    EXPECT_EQ(write_all(), TicketState::kDone);
  EXPECT_GT(bytes_over(0), before);
}

TEST_P(RailsTest, AWriteKeepsToItsRails) {
  write_until_all_rails_carry();
  for (const size_t chosen : {size_t{1}, size_t{0}}) {
    const uint64_t before[] = {bytes_over(0), bytes_over(1)};
    for (int i = 0; i < 3; ++i) EXPECT_EQ(write_all({chosen, 1}), TicketState::kDone);
    EXPECT_EQ(bytes_over(chosen), before[chosen] + 3 * source_.size());
    EXPECT_EQ(bytes_over(1 - chosen), before[1 - chosen]) << "it was not chosen";
  }
  const uint64_t before = bytes_over(1);
  for (int i = 0; i < 100 && bytes_over(1) == before; ++i)
    EXPECT_EQ(write_all({0, 2}), TicketState::kDone);
  EXPECT_GT(bytes_over(1), before) << "the first two are all";
}

TEST_P(RailsTest, PagesAndScattersKeepToTheirRails) {
  write_until_all_rails_carry();
  const uint64_t group = writer_->add_group({{owners_number_, target_}}).value();
  const uint64_t before[] = {bytes_over(0), bytes_over(1)};
  const uint32_t immediate = owner_->counters().acquire().value();
  std::vector<uint32_t> indices(64);
  std::iota(indices.begin(), indices.end(), 0);
  const uint64_t pages = writer_
                             ->write_pages(source_region_, target_, 4096, {indices, 4096, 0},
                                           {indices, 4096, 0}, immediate, deadline(), {1, 1})
                             .value();
  const std::vector<Part> parts = {{{0, 0, source_.size()}, immediate}};
  const uint64_t scatter =
      writer_->scatter(source_region_, group, parts, deadline(), {1, 1}).value();
  for (const uint64_t ticket : {pages, scatter}) {
    ASSERT_TRUE(wait([&] { return writer_->state(ticket).value() != TicketState::kPending; }));
    EXPECT_EQ(writer_->state(ticket).value(), TicketState::kDone);
  }
  const uint64_t expected = immediates_of_pages(4096, 64) + immediates_of_write(source_.size());
  EXPECT_TRUE(wait([&] { return owner_->counters().count(immediate) == expected; }));
  EXPECT_EQ(bytes_over(0), before[0]);
  EXPECT_EQ(bytes_over(1), before[1] + 64 * 4096 + source_.size());
}

TEST_P(RailsTest, AWriteWhoseOnlyRailIsRetiredGoesOverItAllTheSame) {
  ASSERT_TRUE(writer_->retire_rail(1).ok());
  const uint64_t before = bytes_over(0);
  EXPECT_EQ(write_all({1, 1}), TicketState::kDone);
  EXPECT_EQ(bytes_over(0), before);
}

TEST_P(RailsTest, AWriteWhoseOnlyRailIsBrokenTakesNoOther) {
  write_until_all_rails_carry();
  if (!wire_->break_rail(0, 1)) GTEST_SKIP() << "nothing breaks a rail of this wire";
  const uint64_t before = bytes_over(0);
  const uint64_t ticket =
      writer_->write(source_region_, target_, {0, 0, source_.size()}, {}, deadline(), {1, 1})
          .value();
  EXPECT_TRUE(wait([&] { return writer_->state(ticket).value() != TicketState::kPending; }));
  const TicketState end = writer_->state(ticket).value();
  if (end == TicketState::kDone && GetParam().has_thread)
    EXPECT_EQ(memory_, source_) << "the rail was connected again before the write";
  else
    EXPECT_EQ(end, TicketState::kFailed);
  EXPECT_EQ(bytes_over(0), before) << "no other rail carries it";
}

TEST_P(RailsTest, RailsThatAreNotThereAreRefused) {
  const auto write = [&](RailRange rails) {
    return writer_->write(source_region_, target_, {0, 0, 1}, {}, deadline(), rails);
  };
  EXPECT_EQ(write({2, 1}).status().message(),
            "the write names 1 rails from number 2 on: this engine has 2");
  EXPECT_FALSE(write({0, 3}).ok());
  EXPECT_FALSE(write({1, ~size_t{0}}).ok());
  EXPECT_FALSE(write({~size_t{0}, 1}).ok());
}

TEST_P(RailsTest, WhoeverConnectsLaterHearsOfIt) {
  ASSERT_TRUE(owner_->retire_rail(1).ok());
  ASSERT_TRUE(writer_->disconnect(owners_number_).ok());
  ASSERT_TRUE(wait([&] { return !writer_->find_peer(101); }));
  owners_number_ = writer_->connect(owner_->address(), deadline()).value();
  EXPECT_TRUE(wait([&] { return rail(1) == RailState::kRetired; }));
}

INSTANTIATE_TEST_SUITE_P(WithThread, RailsTest, testing::ValuesIn(test::threaded_wire_kinds()),
                         test::name_of_wire);
INSTANTIATE_TEST_SUITE_P(Wires, RailsTest, testing::ValuesIn(test::wire_kinds()),
                         test::name_of_wire);

}  // namespace
}  // namespace braid::fabric
