// Messages of staged domains with a secret: who has none, or repeats what it has recorded, is not
// heard. A peer of the version before seals is.
#include "fabric/staged_liar.h"

namespace braid::fabric {
namespace {

constexpr uint8_t kUnsealed = staged::kSealedVersion - 1;

Secret secret_of(int byte) {
  return Secret::of(std::vector<std::byte>(32, static_cast<std::byte>(byte))).value();
}

class StagedSealsTest : public StagedLiesTest {
 protected:
  StagedSealsTest() { secret_ = secret_of(1); }

  static Record greeting(uint64_t number) {
    return {.kind = Kind::kGreeting, .number = number, .write = number};
  }
  /// Writes `value` into the first byte of the target, which lies at the front of the ring.
  Record piece(const Record& ring, uint64_t number) const {
    return {.kind = Kind::kPiece,
            .session = ring.number,
            .number = number,
            .write = number,
            .size_bytes = 1,
            .total_bytes = 1,
            .address = into_.base,
            .key = into_.key};
  }
  /// What the owner answers to a greeting, if it answers.
  std::optional<Record> greet(Liar& writer, uint64_t number) {
    writer.heard.clear();
    say(writer, {greeting(number)}, writer.wire().address());
    look_on(writer);
    return writer.heard_of(Kind::kRing);
  }
  /// All that was said has come, and has been answered.
  void look_on(Liar& liar) {
    for (int i = 0; i < 1000; ++i) look([&] { return liar.look(), false; });
  }
  void repeat(Liar& liar, const std::vector<std::byte>& message) {
    ASSERT_TRUE(wait([&] { return liar.look(), liar.send(message); }));
    look_on(liar);
  }
  /// An address of the version before seals.
  static std::vector<std::byte> older(Bytes place) {
    std::vector<std::byte> address = staged::encode_address(place, {});
    address[6] = std::byte{kUnsealed};  // src/fabric/staged/records.cpp
    address[7] = std::byte{0};
    return address;
  }
};

TEST_F(StagedSealsTest, WhoHasTheSecretIsHeard) {
  const auto writer = open_staged(0);
  (void)owner_->connect(writer->address()).value();
  expect_a_write_lands(*writer);
  EXPECT_EQ(owner_->rejections().unauthenticated, 0u);
  EXPECT_EQ(owner_->rejections().malformed, 0u);
  EXPECT_EQ(owner_->rejections().replayed, 0u);
}

/// Each message asks for a ring in a peer's name: without the secret, with another one, without a
/// seal.
TEST_F(StagedSealsTest, WhoLacksTheSecretGetsNoAnswerAndIsCounted) {
  const auto peer = open_staged(0);
  (void)owner_->connect(peer->address()).value();
  Liar without(open_wire(0), *owner_), other(open_wire(0), *owner_, secret_of(2));
  Liar unsealed(open_wire(0), *owner_);
  unsealed.version = kUnsealed;
  uint64_t counted = 0;
  for (Liar* liar : {&without, &other, &unsealed}) {
    liar->listen();
    EXPECT_FALSE(greet(*liar, 7)) << counted;
    EXPECT_EQ(owner_->rejections().unauthenticated, ++counted);
    say(*liar, {greeting(8)}, place_of(*peer));
    look_on(*liar);
    EXPECT_EQ(owner_->rejections().unauthenticated, ++counted);
  }
  expect_a_write_lands(*peer);
}

/// The ring may hold other bytes by now.
TEST_F(StagedSealsTest, APieceThatIsRepeatedIsNotCopiedAgain) {
  Liar writer(open_wire(0), *owner_, secret_);
  writer.listen();
  const std::optional<Record> ring = greet(writer, 7);
  ASSERT_TRUE(ring && ring->ok);
  say(writer, {piece(*ring, 1)});
  ASSERT_TRUE(wait([&] { return writer.look(), writer.heard_of(Kind::kDone).has_value(); }));
  const std::vector<std::byte> recorded = writer.said;
  writer.heard.clear();
  repeat(writer, recorded);
  EXPECT_FALSE(writer.heard_of(Kind::kDone));
  EXPECT_EQ(owner_->rejections().replayed, 1u);
  say(writer, {piece(*ring, 2)});
  EXPECT_TRUE(wait([&] { return writer.look(), writer.heard_of(Kind::kDone).has_value(); }));
}

TEST_F(StagedSealsTest, AGreetingThatIsRepeatedEndsNoVisit) {
  Liar writer(open_wire(0), *owner_, secret_);
  writer.listen();
  const std::optional<Record> ring = greet(writer, 7);
  ASSERT_TRUE(ring && ring->ok);
  writer.heard.clear();
  repeat(writer, std::vector<std::byte>(writer.said));
  EXPECT_TRUE(writer.heard.empty()) << "the ring was taken away";
}

TEST_F(StagedSealsTest, WhatWasSaidToAnotherDomainIsOfNoUse) {
  Liar writer(open_wire(0), *owner_, secret_);
  writer.listen();
  ASSERT_TRUE(greet(writer, 7));
  const auto other = open_staged(1);
  Liar thief(open_wire(0), *other);
  ASSERT_TRUE(wait([&] { return thief.look(), thief.send(writer.said); }));
  for (int i = 0; i < 1000; ++i) {
    Completion completion;
    look([&] { return thief.look(), other->poll({&completion, 1}), false; });
  }
  EXPECT_EQ(other->rejections().unauthenticated, 1u);
}

TEST_F(StagedSealsTest, APeerOfTheVersionBeforeSealsIsHeardAndAnsweredWithoutThem) {
  Liar writer(open_wire(0), *owner_);
  writer.version = kUnsealed;
  writer.listen();
  (void)owner_->connect(older(writer.wire().address())).value();
  const std::optional<Record> ring = greet(writer, 7);
  ASSERT_TRUE(ring && ring->ok);
  EXPECT_EQ(writer.heard_version, kUnsealed);
  say(writer, {piece(*ring, 1)});
  ASSERT_TRUE(wait([&] { return writer.look(), writer.heard_of(Kind::kDone).has_value(); }));
  EXPECT_TRUE(writer.heard_of(Kind::kDone)->ok);
}

/// Nobody talks a peer back into the version before.
TEST_F(StagedSealsTest, APeerThatSealsIsNotHeardWithoutSeals) {
  Liar writer(open_wire(0), *owner_, secret_);
  writer.listen();
  (void)owner_->connect(staged::encode_address(writer.wire().address(), {})).value();
  const std::optional<Record> ring = greet(writer, 7);
  ASSERT_TRUE(ring && ring->ok);
  writer.version = kUnsealed;
  writer.heard.clear();
  say(writer, {piece(*ring, 1), {.kind = Kind::kGoodbye, .session = ring->number}});
  look_on(writer);
  EXPECT_TRUE(writer.heard.empty());
  EXPECT_EQ(owner_->rejections().unauthenticated, 2u);
}

TEST_F(StagedLiesTest, WithoutASecretDamageIsSeen) {
  Liar liar(open_wire(0), *owner_);
  say(liar, {{.kind = Kind::kGreeting, .number = 7}}, liar.wire().address());
  std::vector<std::byte> damaged = liar.said;
  damaged[staged::kMarkBytes + 20] ^= std::byte{1};
  ASSERT_TRUE(wait([&] { return liar.look(), liar.send(damaged); }));
  for (int i = 0; i < 1000; ++i) look([&] { return liar.look(), false; });
  EXPECT_EQ(owner_->rejections().malformed, 1u);
}

}  // namespace
}  // namespace braid::fabric
