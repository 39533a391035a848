// Staged domains whose peer is silent, ends, or comes back, as the wire is told by Domain::abandon.
#include <gtest/gtest.h>

#include "fabric/staged/limits.h"
#include "fabric/staged_censor.h"

namespace braid::fabric {
namespace {

class StagedAbsenceTest : public StagedBreakTest {
 protected:
  void start_writer_again() {
    start_writer();
    message_region_ = writer_->add_region(message_, Access::kLocal).value();
  }
  /// A second connection of a writer whose messages stay under way.
  uint32_t connect_again(bool silence_ends_them) {
    start_writer_again();
    of_writer_.silence_ends_them = silence_ends_them;
    of_writer_.messages = Messages::kStay;
    return writer_->connect(owner_->address()).value();
  }
  /// A message of the user's, over the line that the peer's connection shares.
  void send(uint32_t peer, uint64_t context) {
    ASSERT_TRUE(wait([&] { return writer_->post_send(peer, message_region_, message_, context); }));
  }
  bool has_ended(uint64_t context) const { return ended_.contains(context); }

  std::vector<std::byte> message_ = std::vector<std::byte>(100, std::byte{1});
  uint32_t message_region_ = 0;
};

class StagedLeftWayTest : public StagedAbsenceTest, public testing::WithParamInterface<Absence> {};

/// Over shm a silent peer ends nothing, but no more is announced to it: its way is left.
TEST_P(StagedLeftWayTest, APieceUnderWayThereEndsOnceThePeerHas) {
  const uint32_t other = writer_->connect(owner_->address()).value();
  of_writer_.writes_stay = true;
  write(2, 2);
  ASSERT_TRUE(wait([&] { return of_writer_.staying == 1; }));
  const uint32_t first = std::exchange(peer_, other);
  write(3, 2);
  ASSERT_TRUE(wait([&] { return of_writer_.staying == 2; }));
  writer_->abandon(first, Absence::kSilent);
  look_on();
  EXPECT_FALSE(has_ended(2)) << "it may resume, and read the source";
  writer_->abandon(first, GetParam());
  ASSERT_TRUE(wait([&] { return has_ended(2); }));
  EXPECT_FALSE(ended_[2]);
  look_on();
  EXPECT_FALSE(has_ended(3)) << "the other connection is still there";
}

INSTANTIATE_TEST_SUITE_P(Absences, StagedLeftWayTest,
                         testing::Values(Absence::kShut, Absence::kEnded),
                         [](const testing::TestParamInfo<Absence>& absence) {
                           return absence.param == Absence::kShut ? "shut" : "ended";
                         });

/// The line of a peer that has come back is that of its earlier connection, which is given up.
TEST_F(StagedAbsenceTest, ALineIsNotAbandonedWhileAnotherConnectionUsesIt) {
  const uint32_t second = connect_again(true);
  send(peer_, 10);
  send(second, 11);
  writer_->abandon(peer_, Absence::kSilent);
  writer_->abandon(peer_, Absence::kSilent);
  look_on();
  EXPECT_FALSE(has_ended(10) || has_ended(11));
  writer_->abandon(second, Absence::kSilent);
  ASSERT_TRUE(wait([&] { return has_ended(10) && has_ended(11); }));
  EXPECT_FALSE(ended_[10] || ended_[11]);
}

TEST_F(StagedAbsenceTest, AnAbandonedConnectionThatLeavesItsLineBreaksItForNobody) {
  const uint32_t second = connect_again(true);
  send(second, 11);
  writer_->abandon(peer_, Absence::kSilent);
  writer_->disconnect(peer_);
  look_on();
  EXPECT_FALSE(has_ended(11));
}

TEST_F(StagedAbsenceTest, ALineIsAbandonedOnceTheOthersHaveLeftIt) {
  const uint32_t second = connect_again(true);
  const uint32_t third = writer_->connect(owner_->address()).value();
  send(peer_, 10);
  writer_->abandon(peer_, Absence::kSilent);
  writer_->disconnect(second);
  look_on();
  EXPECT_FALSE(has_ended(10));
  writer_->disconnect(third);
  ASSERT_TRUE(wait([&] { return has_ended(10); }));
  EXPECT_FALSE(ended_[10]);
}

/// Over shm only the end of its process ends what is under way. The second connection has not heard
/// of it: it was still being made.
TEST_F(StagedAbsenceTest, TheEndOfAProcessIsRememberedUntilTheOthersHaveLeftItsLine) {
  for (const bool is_disconnected : {false, true}) {
    const uint32_t second = connect_again(false);
    const uint64_t context = is_disconnected ? 10 : 11;
    send(peer_, context);
    writer_->abandon(peer_, Absence::kEnded);
    look_on();
    EXPECT_FALSE(has_ended(context));
    if (is_disconnected)
      writer_->disconnect(second);
    else
      writer_->abandon(second, Absence::kSilent);
    ASSERT_TRUE(wait([&] { return has_ended(context); }));
    EXPECT_FALSE(ended_[context]);
    of_writer_.messages = Messages::kPass;
  }
}

/// Another process may have the address of one that has ended.
TEST_F(StagedAbsenceTest, AConnectionToAnAbandonedPlaceGetsALineOfItsOwn) {
  const uint32_t first = peer_;
  writer_->abandon(first, Absence::kEnded);
  peer_ = writer_->connect(owner_->address()).value();
  write(2, 2);
  ASSERT_TRUE(wait([&] { return has_ended(2) && immediates_[2] == 1; }));
  EXPECT_TRUE(ended_[2]);
  writer_->disconnect(first);
  write(3, 3);
  ASSERT_TRUE(wait([&] { return has_ended(3) && immediates_[3] == 1; }));
  EXPECT_TRUE(ended_[3]);
}

/// Their messages stay under way, and so do their lines.
TEST_F(StagedAbsenceTest, SilentPeersOfTheOwnersTakeNoPlacesOfStrangers) {
  of_owner_.messages = Messages::kStay;
  Write write;
  write.region = owner_->add_region(source_, Access::kLocal).value();
  write.source = source_;
  write.target_address = staged::kGpuBase;
  for (uint64_t i = 0; i < staged::kStrangersMax; ++i) {
    const uint64_t place = 1000 + i;
    const Bytes address = std::as_bytes(std::span(&place, 1));
    write.peer = owner_->connect(staged::encode_address(address, {})).value();
    ASSERT_TRUE(owner_->post_write(write));
    ASSERT_TRUE(wait([&] { return of_owner_.staying == static_cast<int>(i + 1); }));
    owner_->abandon(write.peer, Absence::kSilent);
    owner_->disconnect(write.peer);
  }
  of_owner_.messages = Messages::kPass;
  start_writer();
  this->write(2, 2);
  ASSERT_TRUE(wait([&] { return has_ended(2); })) << "its greeting has no answer";
  EXPECT_TRUE(ended_[2]);
}

TEST_F(StagedAbsenceTest, AWriteWhoseGreetingNobodyAnswersEndsWithItsConnection) {
  start_writer();
  of_writer_.messages = Messages::kVanish;
  write(2, 2);
  ASSERT_TRUE(wait([&] { return of_writer_.censored == 1; }));
  look_on();
  EXPECT_FALSE(has_ended(2));
  writer_->disconnect(peer_);
  ASSERT_TRUE(wait([&] { return has_ended(2); }));
  EXPECT_FALSE(ended_[2]);
}

class StagedGreetingTest : public StagedAbsenceTest {
 protected:
  static constexpr uint64_t kSecondNs = 1'000'000'000;
  void SetUp() override {
    StagedAbsenceTest::SetUp();
    engines_[0] = engine(0, of_writer_);
    engines_[1] = engine(1, of_owner_);
    peer_of_writer_ = engines_[0]->connect(engines_[1]->address(), in(20)).value();
    ASSERT_TRUE(step_until([&] { return engines_[1]->find_peer(100).has_value(); }));
    const uint64_t region = engines_[1]->add_region(target_->bytes()).value();
    const auto granted = engines_[1]->grant(region, *engines_[1]->find_peer(100), 0, kBytes);
    open_ = engines_[0]->open_target(granted.value().descriptor).value();
    region_ = engines_[0]->add_region(source_).value();
  }
  void TearDown() override {
    for (auto& engine : engines_) engine.reset();
    StagedAbsenceTest::TearDown();
  }
  std::unique_ptr<Engine> engine(int side, Censor::Orders& orders) {
    EngineOptions options;
    options.engine = 100 + static_cast<uint64_t>(side);
    std::vector<std::unique_ptr<Domain>> rails;
    rails.push_back(open(side, orders));
    return Engine::open(std::move(rails), options).value();
  }
  uint64_t in(uint64_t seconds) { return wire_->now_ns() + seconds * kSecondNs; }
  bool step_until(const std::function<bool()>& until) {
    for (test::Patience patience(2'000'000); !patience.is_over();) {
      if (until()) return true;
      for (const auto& engine : engines_) engine->step(wire_->now_ns());
      pass_time();
    }
    return false;
  }
  TicketState state(uint64_t ticket) const { return engines_[0]->state(ticket).value(); }

  std::unique_ptr<Engine> engines_[2];
  uint64_t peer_of_writer_ = 0, open_ = 0, region_ = 0;
};

/// What a program waits for ends by its limit, whatever the owner does.
TEST_F(StagedGreetingTest, ATicketWaitsForItsAnswerNoLongerThanItsLimit) {
  of_writer_.spares_users = true;
  of_writer_.messages = Messages::kVanish;
  const uint64_t limit_ns = wire_->now_ns() + kSecondNs / 100;
  const uint64_t late = engines_[0]->write(region_, open_, {0, 0, 1000}, {}, limit_ns).value();
  const uint64_t cancelled = engines_[0]->write(region_, open_, {0, 0, 1000}, {}, in(900)).value();
  ASSERT_TRUE(step_until([&] { return state(late) != TicketState::kPending; }));
  EXPECT_EQ(state(late), TicketState::kQuarantined);
  EXPECT_GE(wire_->now_ns(), limit_ns);
  ASSERT_TRUE(engines_[0]->cancel(cancelled).ok());
  ASSERT_TRUE(engines_[0]->disconnect(peer_of_writer_).ok());
  ASSERT_TRUE(step_until([&] {
    return state(late) == TicketState::kFailed && state(cancelled) == TicketState::kFailed;
  }));
}

}  // namespace
}  // namespace braid::fabric
