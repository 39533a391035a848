// What somebody who lies can do to a staged domain: nothing to its peers.
#include <cstring>

#include "fabric/staged/limits.h"
#include "fabric/staged_liar.h"

namespace braid::fabric {
namespace {

TEST_F(StagedLiesTest, StrangersTakeNoRingFromAPeer) {
  Liar liar(open_wire(0), *owner_);
  std::vector<std::byte> address(sizeof(uint64_t));
  for (uint64_t i = 0; i < 200; ++i) {
    const uint64_t place = 1000 + i;
    std::memcpy(address.data(), &place, sizeof place);
    say(liar, {{.kind = Kind::kGreeting, .number = 1 + i}}, address);
  }
  const auto writer = open_staged(0);
  (void)owner_->connect(writer->address()).value();
  expect_a_write_lands(*writer);
}

/// They say that they are one whom the owner has a connection to.
TEST_F(StagedLiesTest, StrangersWithThePlaceOfAPeerTakeNoRingFromOthers) {
  Liar liar(open_wire(0), *owner_);
  const auto peer = open_staged(0), writer = open_staged(0);
  (void)owner_->connect(peer->address()).value();
  (void)owner_->connect(writer->address()).value();
  for (uint64_t i = 0; i < 200; ++i)
    say(liar, {{.kind = Kind::kGreeting, .number = 1 + i, .write = 1 + i}}, place_of(*peer));
  expect_a_write_lands(*writer);
  expect_a_write_lands(*peer);  // whom they have sent away
}

/// Whoever knows a peer's place knows no keys of regions.
TEST_F(StagedLiesTest, StrangersWithThePlaceOfAPeerEndNoVisitThatHasShownAKey) {
  Liar liar(open_wire(0), *owner_);
  const auto peer = open_staged(0);
  (void)owner_->connect(peer->address()).value();
  const uint32_t to_owner = peer->connect(owner_->address()).value();
  expect_a_write_lands(*peer, to_owner, [] {});
  for (uint64_t i = 0; i < 20; ++i)
    expect_a_write_lands(*peer, to_owner, [&] {
      say(liar, {{.kind = Kind::kGreeting, .number = 1 + i, .write = 1 + i}}, place_of(*peer));
    });
}

class StagedVisitsTest : public StagedLiesTest {
 protected:
  void SetUp() override {
    StagedLiesTest::SetUp();
    visitor_.emplace(open_wire(0), *owner_);
    visitor_->listen();
    (void)owner_->connect(staged::encode_address(visitor_->wire().address(), {})).value();
  }
  /// What the owner answers. Each greeting is of a connection of its own.
  Record greet() {
    visitor_->heard.clear();
    const uint64_t number = ++greetings_;
    say(*visitor_, {{.kind = Kind::kGreeting, .number = number, .write = number}},
        visitor_->wire().address());
    const Record* answer = nullptr;
    EXPECT_TRUE(wait([&] {
      visitor_->look();
      return (answer = heard_ring(number)) != nullptr;
    }));
    return answer == nullptr ? Record{.ok = false} : *answer;
  }
  void show_key(const Record& ring) {
    visitor_->heard.clear();
    say(*visitor_, {{.kind = Kind::kPiece,
                     .session = ring.number,
                     .number = 1,
                     .write = 1,
                     .size_bytes = 1,
                     .total_bytes = 1,
                     .address = into_.base,
                     .key = into_.key}});
    ASSERT_TRUE(wait([&] {
      visitor_->look();
      return visitor_->heard_of(Kind::kDone).has_value();
    }));
  }
  /// All that was said has come.
  void look_on() {
    for (int i = 0; i < 1000; ++i) look([] { return false; });
  }
  const Record* heard_ring(uint64_t number) const {
    for (const Record& record : visitor_->heard)
      if (record.kind == Kind::kRing && record.session == number) return &record;
    return nullptr;
  }

  std::optional<Liar> visitor_;
  uint64_t greetings_ = 0;
};

TEST_F(StagedVisitsTest, AWriterThatHasComeBackEndsItsEarlierVisitWithAKey) {
  for (size_t i = 0; i < staged::kRingsMax + 6; ++i) {
    const Record ring = greet();
    ASSERT_TRUE(ring.ok) << i;
    show_key(ring);
    const auto is_told = [&] { return visitor_->look(), heard_ring(greetings_ - 1) != nullptr; };
    ASSERT_TRUE(i == 0 || wait(is_told)) << "the earlier one";
  }
}

TEST_F(StagedVisitsTest, AWriterThatHasComeBackGetsItsEarlierRingIfThereIsNoOther) {
  show_key(greet());
  Liar liar(open_wire(0), *owner_);
  for (uint64_t i = 1; i < staged::kRingsMax; ++i) {
    const uint64_t place = 1000 + i;
    std::vector<std::byte> address(sizeof place);
    std::memcpy(address.data(), &place, sizeof place);
    (void)owner_->connect(staged::encode_address(address, {})).value();
    say(liar, {{.kind = Kind::kGreeting, .number = i, .write = i}}, address);
  }
  look_on();
  EXPECT_FALSE(greet().ok);
  look_on();  // the door is drained
  EXPECT_TRUE(greet().ok);
}

/// A piece would wait for room there for ever.
TEST_F(StagedLiesTest, ARingWithoutRoomForAPieceIsLeft) {
  const auto writer = open_staged(0);
  Liar owner(open_wire(1), *writer);
  owner.listen();
  std::vector<std::byte> source(100, std::byte{5});
  Write write;
  write.peer = writer->connect(staged::encode_address(owner.wire().address(), {})).value();
  write.region = writer->add_region(source, Access::kLocal).value();
  write.source = source;
  write.target_address = into_.base;
  ASSERT_TRUE(writer->post_write(write));
  std::optional<bool> ended;
  const auto look_at_both = [&] {
    owner.look();
    Completion completion;
    if (writer->poll({&completion, 1}) > 0) ended = completion.ok;
  };
  ASSERT_TRUE(wait([&] { return look_at_both(), owner.heard_of(Kind::kGreeting).has_value(); }));
  std::vector<std::byte> door;
  const Bytes address = owner.wire().address();
  staged::append_addresses(door, {&address, 1});
  say(owner,
      {{.kind = Kind::kRing,
        .session = owner.heard_of(Kind::kGreeting)->number,
        .number = 55,
        .size_bytes = staged::kPieceBytesMax - 1}},
      door);
  ASSERT_TRUE(wait([&] {
    look_at_both();
    return ended.has_value() && owner.heard_of(Kind::kGoodbye).has_value();
  }));
  EXPECT_FALSE(*ended);
  EXPECT_EQ(owner.heard_of(Kind::kGoodbye)->session, 55u);
}

/// Each piece is refused, and nobody takes the answers.
TEST_F(StagedLiesTest, AnswersThatNobodyTakesAreLimited) {
  constexpr uint64_t kMessages = 500, kPieces = 50;
  Liar liar(open_wire(0), *owner_);
  liar.listen();
  say(liar, {{.kind = Kind::kGreeting, .number = 7}}, liar.wire().address());
  ASSERT_TRUE(wait([&] {
    liar.look();
    return liar.heard_of(Kind::kRing).has_value();
  }));
  const Record ring = *liar.heard_of(Kind::kRing);
  ASSERT_TRUE(ring.ok);
  // Another wire says the pieces: this one's buffers then hold few of the answers.
  Liar other(open_wire(0), *owner_);
  for (uint64_t i = 0; i < kMessages; ++i) {
    std::vector<Record> pieces;
    for (uint64_t j = 0; j < kPieces; ++j)
      pieces.push_back({.kind = Kind::kPiece,
                        .session = ring.number,
                        .number = i * kPieces + j,
                        .write = i * kPieces + j,
                        .size_bytes = 1,
                        .total_bytes = 2,
                        .key = ~into_.key});
    say(other, pieces);
  }
  size_t heard = 0;
  do {
    heard = liar.heard.size();
    for (int i = 0; i < 2000; ++i) look([&] { return liar.look(), false; });
  } while (liar.heard.size() > heard);
  EXPECT_GT(heard, 1000u);
  EXPECT_LT(heard, 10'000u);
}

}  // namespace
}  // namespace braid::fabric
