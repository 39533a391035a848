// The engine on every kind of wire: what a user of it sees.
#include "fabric/engine.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "fabric/wires.h"

namespace braid::fabric {
namespace {

using test::some_bytes;

constexpr uint64_t kSecondNs = 1'000'000'000;
constexpr int kStepsMax = 5'000'000;

class EngineTest : public testing::TestWithParam<test::WireKind> {
 protected:
  void SetUp() override {
    wire_ = GetParam().make();
    owner_ = open(0, 101, 2);
    writer_ = open(1, 102, 2);
    const Result<uint64_t> peer = owner_->connect(writer_->address(), deadline());
    ASSERT_TRUE(peer.ok()) << peer.status().message();
    writers_number_ = peer.value();
    ASSERT_TRUE(wait([&] { return writer_->find_peer(101) && is_connected(); }));
    owners_number_ = *writer_->find_peer(101);
  }

  std::unique_ptr<Engine> open(int side, uint64_t engine, size_t rails) {
    EngineOptions options;
    options.engine = engine;
    options.credits = 4;
    std::vector<std::unique_ptr<Domain>> domains;
    for (size_t i = 0; i < rails; ++i) domains.push_back(wire_->open(side));
    return Engine::open(std::move(domains), options).value();
  }

  uint64_t deadline(double seconds = 20) {
    return wire_->now_ns() + static_cast<uint64_t>(seconds * kSecondNs);
  }
  bool is_connected() {
    return owner_->peer_state(writers_number_).value() == PeerState::kConnected;
  }

  bool wait(const std::function<bool()>& until) {
    for (test::Patience patience(kStepsMax); !patience.is_over();) {
      if (until()) return true;
      owner_->step(wire_->now_ns());
      writer_->step(wire_->now_ns());
      wire_->pass_time();
    }
    return until();
  }
  TicketState end_of(uint64_t ticket) {
    wait([&] { return writer_->state(ticket).value() != TicketState::kPending; });
    return writer_->state(ticket).value();
  }

  uint64_t under_way_bytes() {
    uint64_t sum_bytes = 0;
    for (const RouteStatistics& route : writer_->routes()) sum_bytes += route.under_way_bytes;
    return sum_bytes;
  }
  bool is_under_way() { return under_way_bytes() > 0; }

  /// As the wire's owners have it; all zero.
  MutableBytes memory_of_owner(size_t size_bytes) {
    memories_.push_back(wire_->memory(1, size_bytes));
    return memories_.back()->bytes();
  }

  /// The owner grants `memory`, and the writer opens it.
  struct Opened {
    uint64_t region;
    uint64_t grant;
    uint64_t target;
    Descriptor descriptor;
  };
  Opened open_memory(MutableBytes memory) {
    const uint64_t region = owner_->add_region(memory).value();
    const Granted granted = owner_->grant(region, writers_number_, 0, memory.size()).value();
    const Descriptor sent = decode_descriptor(encode(granted.descriptor)).value();
    return {region, granted.grant, writer_->open_target(sent).value(), sent};
  }

  std::unique_ptr<test::Wire> wire_;
  std::vector<std::unique_ptr<test::Memory>> memories_;
  std::unique_ptr<Engine> owner_;
  std::unique_ptr<Engine> writer_;
  uint64_t writers_number_ = 0;  // to the owner
  uint64_t owners_number_ = 0;   // to the writer
};

TEST_P(EngineTest, TheCountSaysThatEveryByteOfAWriteIsThere) {
  for (const uint64_t size_bytes :
       {uint64_t{0}, uint64_t{1}, uint64_t{4097}, uint64_t{9'000'001}}) {
    auto source = some_bytes(size_bytes + 3, 1);
    const MutableBytes memory = memory_of_owner(size_bytes + 7);
    const Opened opened = open_memory(memory);
    const uint64_t from = writer_->add_region(source).value();
    const uint32_t immediate = owner_->counters().acquire().value();
    const uint64_t ticket =
        writer_->write(from, opened.target, {3, 5, size_bytes}, immediate, deadline()).value();
    const uint64_t expected = immediates_of_write(size_bytes);
    ASSERT_TRUE(wait([&] { return owner_->counters().count(immediate) == expected; }));
    EXPECT_EQ(std::memcmp(memory.data() + 5, source.data() + 3, size_bytes), 0) << size_bytes;
    EXPECT_EQ(end_of(ticket), TicketState::kDone);
    EXPECT_EQ(owner_->counters().count(immediate), expected);
    EXPECT_EQ(memory[4], std::byte{0});
    EXPECT_EQ(memory[size_bytes + 5], std::byte{0});
    EXPECT_TRUE(writer_->remove_region(from).ok());
  }
}

TEST_P(EngineTest, ACancelledWriteEndsOnceNothingOfItIsUnderWay) {
  const auto untouched = some_bytes(40'000'000, 1);
  auto source = untouched;
  const MutableBytes memory = memory_of_owner(source.size());
  const Opened opened = open_memory(memory);
  const uint64_t from = writer_->add_region(source).value();
  const uint32_t immediate = owner_->counters().acquire().value();
  const uint64_t expected = immediates_of_write(source.size());
  const Slice all{0, 0, source.size()};
  const uint64_t ticket = writer_->write(from, opened.target, all, immediate, deadline()).value();
  wait([&] { return is_under_way(); });
  const bool is_all_under_way = under_way_bytes() == source.size();
  ASSERT_TRUE(writer_->cancel(ticket).ok());
  if (is_all_under_way) {
    EXPECT_EQ(end_of(ticket), TicketState::kDone);
    return;  // this wire has room for all of it
  }
  EXPECT_FALSE(writer_->remove_region(from).ok()) << "a part is under way";
  EXPECT_EQ(end_of(ticket), TicketState::kFailed);
  EXPECT_EQ(writer_->failure(ticket), Failure::kCancelled);
  std::fill(source.begin(), source.end(), std::byte{0});  // it is free
  const uint64_t quiet_ns = wire_->now_ns() + kSecondNs / 100;
  wait([&] { return wire_->now_ns() > quiet_ns; });
  EXPECT_LT(owner_->counters().count(immediate), expected);
  for (size_t i = 0; i < memory.size(); ++i)
    ASSERT_TRUE(memory[i] == untouched[i] || memory[i] == std::byte{0}) << i;
  ASSERT_TRUE(writer_->cancel(ticket).ok()) << "it has ended, and stays so";
  EXPECT_EQ(writer_->state(ticket).value(), TicketState::kFailed);

  source = untouched;
  const uint32_t again = owner_->counters().acquire().value();
  const uint64_t small =
      writer_->write(from, opened.target, {0, 0, 100}, again, deadline()).value();
  wait([&] { return is_under_way() || writer_->state(small).value() != TicketState::kPending; });
  ASSERT_TRUE(writer_->cancel(small).ok());
  EXPECT_EQ(end_of(small), TicketState::kDone) << "all of it was under way";
  EXPECT_TRUE(wait([&] { return owner_->counters().count(again) == 1; }));
  EXPECT_FALSE(writer_->cancel(12345).ok());
}

TEST_P(EngineTest, PagesGoWhereTheirIndicesSay) {
  constexpr size_t kPage = 8192, kPages = 200;
  auto source = some_bytes(kPage * kPages, 2);
  const MutableBytes memory = memory_of_owner(source.size());
  const Opened opened = open_memory(memory);
  const uint64_t from = writer_->add_region(source).value();
  const uint32_t immediate = owner_->counters().acquire().value();
  Pages source_pages{{}, kPage, 0}, target_pages{{}, kPage, 0};
  for (uint32_t page = 0; page < kPages; ++page) {
    source_pages.indices.push_back(page);
    target_pages.indices.push_back((page * 7 + 3) % kPages);
  }
  const uint64_t ticket = writer_
                              ->write_pages(from, opened.target, kPage, source_pages, target_pages,
                                            immediate, deadline())
                              .value();
  const uint64_t expected = immediates_of_pages(kPage, kPages);
  ASSERT_TRUE(wait([&] { return owner_->counters().count(immediate) == expected; }));
  for (size_t page = 0; page < kPages; ++page)
    ASSERT_EQ(std::memcmp(memory.data() + target_pages.indices[page] * kPage,
                          source.data() + page * kPage, kPage),
              0)
        << page;
  EXPECT_EQ(end_of(ticket), TicketState::kDone);
}

TEST_P(EngineTest, ANotificationIsOneImmediate) {
  const uint32_t immediate = owner_->counters().acquire().value();
  const uint64_t ticket = writer_->notify(owners_number_, immediate, deadline()).value();
  ASSERT_TRUE(wait([&] { return owner_->counters().count(immediate) == 1; }));
  EXPECT_EQ(end_of(ticket), TicketState::kDone);
  EXPECT_EQ(owner_->counters().strays(), 0u);
}

TEST_P(EngineTest, AMessageArrivesOrTheSenderHearsThatThereIsNoBuffer) {
  const auto message = some_bytes(kPayloadBytesMax, 3);
  for (int i = 0; i < 4; ++i) ASSERT_TRUE(writer_->send(owners_number_, message).ok());
  EXPECT_EQ(writer_->send(owners_number_, message).message(),
            "the peer has no buffer for another message now. Try again later");
  EXPECT_FALSE(writer_->send(owners_number_, some_bytes(kPayloadBytesMax + 1, 3)).ok());
  int received = 0;
  ASSERT_TRUE(wait([&] {
    while (const auto got = owner_->receive()) {
      EXPECT_EQ(got->peer, writers_number_);
      EXPECT_EQ(got->payload, message);
      ++received;
    }
    return received == 4;
  }));
  EXPECT_TRUE(wait([&] { return writer_->send(owners_number_, message).ok(); }))
      << "credits come back";
}

TEST_P(EngineTest, BytesThatFollowAMessageComeWithIt) {
  const auto message = some_bytes(kPayloadBytesBeforeMax, 3);
  for (const size_t size_bytes : {size_t{1}, kFollowingBytesMax}) {
    const auto following = some_bytes(size_bytes, 4);
    ASSERT_TRUE(writer_->send(owners_number_, message, following).ok());
    std::optional<Received> received;
    ASSERT_TRUE(wait([&] { return (received = owner_->receive()).has_value(); }));
    EXPECT_EQ(received->payload, message);
    EXPECT_EQ(received->following, following);
  }
  const auto longer = some_bytes(kPayloadBytesBeforeMax + 1, 3);
  EXPECT_FALSE(writer_->send(owners_number_, longer, message).ok());
  EXPECT_FALSE(writer_->send(owners_number_, message, some_bytes(kFollowingBytesMax + 1, 3)).ok());
}

TEST_P(EngineTest, RevokedMemoryIsFencedAndItsTargetIsGone) {
  auto source = some_bytes(1000, 4);
  const MutableBytes memory = memory_of_owner(1000);
  const Opened opened = open_memory(memory);
  const uint64_t from = writer_->add_region(source).value();
  EXPECT_FALSE(owner_->remove_region(opened.region).ok()) << "it is granted";
  ASSERT_TRUE(owner_->revoke(opened.grant, deadline()).ok());
  ASSERT_TRUE(wait([&] { return owner_->fence(opened.grant).value() == Fence::kFenced; }));
  EXPECT_FALSE(writer_->write(from, opened.target, {0, 0, 10}, {}, deadline()).ok());
  EXPECT_EQ(writer_->open_target(opened.descriptor).status().message(),
            "the owner has revoked this descriptor");
  EXPECT_TRUE(owner_->forget_grant(opened.grant).ok());
  EXPECT_TRUE(owner_->remove_region(opened.region).ok());
}

TEST_P(EngineTest, AWriterThatDoesNotAnswerIsFencedOrItsMemoryQuarantined) {
  const MutableBytes memory = memory_of_owner(1000);
  const Opened opened = open_memory(memory);
  std::vector<std::byte> source(10);
  const uint64_t from = writer_->add_region(source).value();
  EXPECT_EQ(end_of(writer_->write(from, opened.target, {0, 0, 10}, {}, deadline()).value()),
            TicketState::kDone);
  ASSERT_TRUE(owner_->revoke(opened.grant, deadline(0.01)).ok());
  const auto fence = [&] { return owner_->fence(opened.grant).value(); };
  for (test::Patience patience(kStepsMax); fence() == Fence::kRevoking && !patience.is_over();) {
    owner_->step(wire_->now_ns());  // the writer is silent
    wire_->pass_time();
  }
  const std::string& name = GetParam().name;
  const bool is_simulated_hardware = name == "simulated" || name == "simulated_endpoints";
  EXPECT_EQ(fence(), is_simulated_hardware ? Fence::kFenced : Fence::kQuarantined);
  EXPECT_TRUE(wait([&] { return fence() == Fence::kFenced; })) << "it answers late";
}

TEST_P(EngineTest, ADescriptorThatIsWrongIsRefusedWithTheCause) {
  const MutableBytes memory = memory_of_owner(1000);
  const uint64_t region = owner_->add_region(memory).value();
  const Descriptor good = owner_->grant(region, writers_number_, 0, 1000).value().descriptor;
  Descriptor of_nobody = good, for_another = good, short_of_rails = good;
  of_nobody.owner = 77;
  for_another.writer = 77;
  short_of_rails.rails.pop_back();
  EXPECT_EQ(writer_->open_target(of_nobody).status().message(),
            "the owner of this descriptor is no peer of this engine");
  EXPECT_EQ(writer_->open_target(for_another).status().message(),
            "this descriptor is for another engine, or for an earlier process");
  EXPECT_EQ(writer_->open_target(short_of_rails).status().message(),
            "this descriptor is for 1 rails, and this engine has 2");
  EXPECT_TRUE(writer_->open_target(good).ok());
  EXPECT_FALSE(writer_->open_target(good).ok()) << "it is open";
  EXPECT_FALSE(owner_->grant(region, writers_number_, 1, 1000).ok()) << "beyond the region";
}

TEST_P(EngineTest, WritesOutsideWhatWasGrantedAreArgumentErrors) {
  std::vector<std::byte> source(1000);
  const MutableBytes memory = memory_of_owner(1000);
  const Opened opened = open_memory(memory);
  const uint64_t from = writer_->add_region(source).value();
  for (const Slice& slice : {Slice{0, 1, 1000}, Slice{1, 0, 1000}, Slice{~uint64_t{0}, 0, 2}})
    EXPECT_FALSE(writer_->write(from, opened.target, slice, {}, deadline()).ok());
  EXPECT_FALSE(writer_->write(from, opened.target + 1, {0, 0, 1}, {}, deadline()).ok());
  EXPECT_FALSE(writer_->write(from + 1, opened.target, {0, 0, 1}, {}, deadline()).ok());
}

TEST_P(EngineTest, AnotherNumberOfRailsIsAnErrorAtConnect) {
  const auto other = open(1, 103, 1);
  EXPECT_EQ(owner_->connect(other->address(), deadline()).status().message(),
            "the peer has 1 rails, and this engine has 2. Open both with as many");
}

TEST_P(EngineTest, AnAddressOfAProcessThatIsGoneConnectsToNobody) {
  Address old = writer_->address();
  old.engine = 99;  // another process was there before
  const uint64_t peer = owner_->connect(old, deadline(0.05)).value();
  ASSERT_TRUE(wait([&] { return owner_->peer_state(peer).value() != PeerState::kConnecting; }));
  EXPECT_EQ(owner_->peer_state(peer).value(), PeerState::kFailed);
  EXPECT_FALSE(writer_->find_peer(99));
  EXPECT_TRUE(wait([&] { return writer_->statistics().misdirected > 0; }));
  EXPECT_TRUE(owner_->disconnect(peer).ok());
}

TEST_P(EngineTest, ManyWritesAtOnceAllArrive) {
  constexpr size_t kWrites = 3000, kBytes = 64;
  auto source = some_bytes(kWrites * kBytes, 5);
  const MutableBytes memory = memory_of_owner(source.size());
  const Opened opened = open_memory(memory);
  const uint64_t from = writer_->add_region(source).value();
  const uint32_t immediate = owner_->counters().acquire().value();
  std::vector<uint64_t> tickets;
  for (size_t i = 0; i < kWrites; ++i)
    tickets.push_back(
        writer_->write(from, opened.target, {i * kBytes, i * kBytes, kBytes}, immediate, deadline())
            .value());
  ASSERT_TRUE(wait([&] { return owner_->counters().count(immediate) == kWrites; }));
  EXPECT_TRUE(std::equal(memory.begin(), memory.end(), source.begin()));
  for (const uint64_t ticket : tickets) ASSERT_EQ(end_of(ticket), TicketState::kDone);
}

TEST_P(EngineTest, DisconnectingEndsWhatIsUnderWay) {
  std::vector<std::byte> source(8 << 20);
  const MutableBytes memory = memory_of_owner(8 << 20);
  const Opened opened = open_memory(memory);
  const uint64_t from = writer_->add_region(source).value();
  const uint64_t ticket =
      writer_->write(from, opened.target, {0, 0, source.size()}, {}, deadline()).value();
  writer_->step(wire_->now_ns());
  ASSERT_TRUE(writer_->disconnect(owners_number_).ok());
  EXPECT_FALSE(writer_->write(from, opened.target, {0, 0, 1}, {}, deadline()).ok());
  const TicketState state = end_of(ticket);
  EXPECT_TRUE(state == TicketState::kFailed || state == TicketState::kDone);
  EXPECT_FALSE(writer_->peer_state(owners_number_).ok());
  EXPECT_TRUE(writer_->remove_region(from).ok()) << "nothing reads it any more";
}

INSTANTIATE_TEST_SUITE_P(WithThread, EngineTest, testing::ValuesIn(test::threaded_wire_kinds()),
                         test::name_of_wire);
INSTANTIATE_TEST_SUITE_P(Wires, EngineTest, testing::ValuesIn(test::wire_kinds()),
                         test::name_of_wire);

}  // namespace
}  // namespace braid::fabric
