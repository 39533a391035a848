// A connection that breaks may take messages with it without a word to either side, and be replaced
// at once. Whoever misses a message cannot obey it, so the peer is given up. If a rail goes on
// taking messages with it, they come over another one.
#include <gtest/gtest.h>

#include <optional>
#include <set>
#include <vector>

#include "fabric/liar.h"
#include "fabric/small_net.h"

namespace braid::fabric {
namespace {

using test::SmallNet;

class LostMessagesTest : public testing::Test {
 protected:
  static constexpr double kLimitUs = 4'000, kIntervalUs = 1'000;  // SmallNet's heartbeat
  static constexpr double kProbeLateUs = static_cast<double>(RailHealth::kProbeLateNs) / 1e3;

  LostMessagesTest() { net_.run(10); }
  void connect(size_t rails) {
    net_.rail_count = rails;
    speaker_ = &net_.add(1);
    listener_ = &net_.add(2);
    net_.connect(*speaker_, *listener_);
    peer_ = net_.number_of(*listener_, *speaker_);
  }
  void say(std::byte what) { ASSERT_TRUE(speaker_->engine->send(peer_, Bytes(&what, 1)).ok()); }
  void hear() {
    while (const auto received = listener_->engine->receive())
      heard_.insert(std::to_integer<int>(received->payload.front()));
  }
  /// As long as that, a message every 100 us, which the listener takes.
  void talk(double us) {
    for (double at_us = 0; at_us < us; at_us += 100) {
      const std::byte other{0};
      (void)speaker_->engine->send(peer_, Bytes(&other, 1));
      net_.run(100);
      hear();
    }
  }
  void lose_one() {
    net_.cut(*speaker_, 0, sim::Break::kSwallows);
    say(std::byte{1});
    net_.run(100);
    net_.mend(*speaker_, 0);
  }
  PeerFailure failure() {
    return listener_->engine->peer_failure(net_.number_of(*speaker_, *listener_)).value();
  }

  SmallNet net_;
  SmallNet::Node *speaker_ = nullptr, *listener_ = nullptr;
  uint64_t peer_ = 0;  // the listener, for the speaker
  std::set<int> heard_;
};

TEST_F(LostMessagesTest, APeerOfWhichOneIsLostIsGivenUpThoughOthersKeepComing) {
  connect(1);
  lose_one();
  talk(kLimitUs - kIntervalUs);
  EXPECT_EQ(failure(), PeerFailure::kNone) << "it may still come";
  talk(3 * kIntervalUs);
  EXPECT_EQ(failure(), PeerFailure::kNetwork);
  EXPECT_EQ(heard_, std::set<int>{0});
  EXPECT_EQ(speaker_->engine->peer_failure(peer_).value(), PeerFailure::kGaveUs);
}

/// Nobody says anything after it but the beats.
TEST_F(LostMessagesTest, ABeatShowsThatTheLastOneIsLost) {
  connect(1);
  lose_one();
  net_.run(kLimitUs + 3 * kIntervalUs);
  EXPECT_EQ(failure(), PeerFailure::kNetwork);
}

/// Its answer to the Welcome, which would have been its first message.
TEST_F(LostMessagesTest, SoIsOneWhoseFirstMessageIsLost) {
  SmallNet::Node& owner = net_.add(1);
  test::Liar peer(net_, 50, owner);
  peer.send(peer.hello());
  ASSERT_TRUE(net_.run(10'000, [&] {
    for (const Message& message : peer.look()) peer.victims_session = message.session.from;
    return peer.victims_session != 0;
  }));
  (void)peer.next(Beat{});
  std::optional<uint64_t> number;
  for (double at_us = 0; at_us < 2 * kLimitUs; at_us += 500) {
    peer.send(peer.next(Beat{}));
    net_.run(500);
    peer.look();
    if (!number) number = owner.engine->find_peer(test::Liar::kEngine);
  }
  ASSERT_TRUE(number) << "it was connected";
  EXPECT_EQ(owner.engine->peer_failure(*number).value(), PeerFailure::kNetwork);
}

TEST_F(LostMessagesTest, OneThatIsLostIsNoticedBesideAnotherRail) {
  connect(2);
  lose_one();
  talk(kLimitUs - kIntervalUs);
  EXPECT_EQ(failure(), PeerFailure::kNone) << "it may still come";
  talk(3 * kLimitUs);
  EXPECT_EQ(failure(), PeerFailure::kNetwork);
  EXPECT_EQ(heard_, std::set<int>{0});
}

TEST_F(LostMessagesTest, APeerIsNotSilentWhileOneOfItsRailsWorks) {
  connect(2);
  for (const size_t rail : {0, 1}) {
    net_.cut(*speaker_, rail, sim::Break::kSwallows);
    net_.run(10 * kLimitUs);
    EXPECT_EQ(failure(), PeerFailure::kNone);
    EXPECT_EQ(speaker_->engine->peer_failure(peer_).value(), PeerFailure::kNone);
    net_.mend(*speaker_, rail);
    net_.run(5 * kLimitUs);
  }
}

TEST_F(LostMessagesTest, WhatARailHasSwallowedComesOverAnother) {
  connect(2);
  net_.cut(*speaker_, 0, sim::Break::kSwallows);
  say(std::byte{1});
  net_.run(1.1 * kProbeLateUs);
  say(std::byte{2});
  net_.run(100);
  hear();
  EXPECT_EQ(heard_, (std::set<int>{1, 2}));
  EXPECT_EQ(failure(), PeerFailure::kNone);
}

/// Nor does a rail that is broken from the beginning keep engines apart.
TEST_F(LostMessagesTest, TheGreetingComesOverEveryRail) {
  net_.rail_count = 2;
  speaker_ = &net_.add(1);
  listener_ = &net_.add(2);
  net_.cut(*listener_, 0, sim::Break::kSwallows);
  peer_ = net_.connect(*speaker_, *listener_);
  EXPECT_EQ(speaker_->engine->peer_state(peer_).value(), PeerState::kConnected);
  net_.run(10 * kLimitUs);
  EXPECT_EQ(failure(), PeerFailure::kNone);
  say(std::byte{1});
  net_.run(1.1 * kProbeLateUs);
  hear();
  EXPECT_EQ(heard_, std::set<int>{1});
  EXPECT_EQ(listener_->engine->statistics().refused, 0u);
}

/// It lies on a rail that stands still, and others overtake it on the other rail.
TEST_F(LostMessagesTest, OneThatIsOvertakenOnAnotherRailIsNotLost) {
  connect(2);
  for (const size_t rail : {0, 1}) {
    net_.cut(*speaker_, rail, sim::Break::kStalls);
    say(std::byte{static_cast<uint8_t>(1 + rail)});
    talk(2 * kLimitUs);
    net_.mend(*speaker_, rail);
    talk(kIntervalUs);
  }
  EXPECT_EQ(failure(), PeerFailure::kNone);
  EXPECT_EQ(heard_, (std::set<int>{0, 1, 2}));
}

}  // namespace
}  // namespace braid::fabric
