// Several endpoints that are one domain (fabric/endpoints.h): which of them carries what. That they
// keep the contract is tested where all wires are (wires.h: "_endpoints").
#include "fabric/endpoints.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>

#include "fabric/fake_endpoint.h"
#include "fabric/policy/way_health.h"

namespace braid::fabric {
namespace {

constexpr uint64_t kSmall = 100;
constexpr size_t kDoorsMax = 2;

class EndpointsTest : public testing::Test {
 protected:
  static constexpr size_t kCount = 3;
  void SetUp() override {
    std::vector<std::unique_ptr<Domain>> endpoints;
    for (uint8_t number = 1; number <= kCount; ++number) {
      auto endpoint = std::make_unique<FakeEndpoint>(number);
      // Things have other numbers at each.
      for (uint8_t i = 0; i < number; ++i) (void)endpoint->add_region({}, Access::kLocal);
      at_.push_back(endpoint.get());
      endpoints.push_back(std::move(endpoint));
    }
    domain_ = join_endpoints(std::move(endpoints), {kDoorsMax, kSmall});
    region_ = domain_->add_region(memory_, Access::kLocal).value();
  }
  uint32_t connect(size_t further) {
    const std::array<std::byte, 1> names[] = {{std::byte{11}}, {std::byte{12}}, {std::byte{13}}};
    const Bytes all[] = {names[1], names[2]};
    return domain_->connect_all(names[0], std::span(all).first(further)).value();
  }
  bool post(uint32_t peer, uint64_t size_bytes, uint64_t context = 1) {
    Write write;
    write.peer = peer;
    write.region = region_;
    write.source = Bytes(memory_).first(size_bytes);
    write.context = context;
    return domain_->post_write(write);
  }
  std::vector<Completion> poll() {
    std::vector<Completion> all(16);
    all.resize(domain_->poll(all));
    return all;
  }
  std::vector<size_t> counts() const {
    std::vector<size_t> all;
    for (const FakeEndpoint* endpoint : at_) all.push_back(endpoint->writes.size());
    return all;
  }
  /// Ends all that is under way, well.
  void end_all() {
    for (FakeEndpoint* endpoint : at_) endpoint->end_all(true);
    while (!poll().empty()) {
    }
  }

  std::vector<std::byte> memory_ = std::vector<std::byte>(4096);
  std::vector<FakeEndpoint*> at_;
  std::unique_ptr<Domain> domain_;
  uint32_t region_ = 0;
};

using Counts = std::vector<size_t>;

TEST_F(EndpointsTest, ALargeWriteTakesTheEndpointWithTheLeastToCarry) {
  const uint32_t peer = connect(2);
  ASSERT_TRUE(post(peer, 4000));
  EXPECT_EQ(counts(), (Counts{0, 1, 0})) << "all are idle: the first is the last choice";
  ASSERT_TRUE(post(peer, 1000));
  EXPECT_EQ(counts(), (Counts{0, 1, 1}));
  ASSERT_TRUE(post(peer, 1000));
  EXPECT_EQ(counts(), (Counts{1, 1, 1}));
  for (int i = 0; i < 4; ++i) ASSERT_TRUE(post(peer, 1000));
  EXPECT_EQ(counts(), (Counts{3, 1, 3}));
  at_[2]->end_all(true);
  (void)poll();
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(post(peer, 1000));
  EXPECT_EQ(counts(), (Counts{3, 1, 3})) << "the bytes of what has ended do not count";
}

TEST_F(EndpointsTest, EachEndpointKnowsThePeerAndTheRegionByItsOwnNumbers) {
  (void)at_[1]->connect({});  // another number of the peer's there
  const uint32_t peer = connect(2);
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(post(peer, 1000));
  for (size_t i = 0; i < kCount; ++i) {
    ASSERT_EQ(at_[i]->writes.size(), 1u);
    EXPECT_EQ(at_[i]->writes[0].peer, i == 1 ? 102u : 101u);
    EXPECT_EQ(at_[i]->writes[0].region, i + 1);
    EXPECT_EQ(at_[i]->connected.back(), std::vector{static_cast<std::byte>(11 + i)});
  }
}

TEST_F(EndpointsTest, SmallWritesAndMessagesTakeTheFirst) {
  const uint32_t peer = connect(2);
  for (int i = 0; i < 5; ++i) ASSERT_TRUE(post(peer, kSmall));
  EXPECT_EQ(counts(), (Counts{5, 0, 0}));
  ASSERT_TRUE(domain_->post_send(peer, region_, memory_, 1));
  ASSERT_TRUE(domain_->post_receive(region_, memory_, 1));
  EXPECT_EQ(at_[0]->sends.size() + at_[0]->receives.size(), 2u);
}

TEST_F(EndpointsTest, ABatchGoesToTheFirstInOneCall) {
  const uint32_t peer = connect(2);
  std::vector<Write> writes(4);
  for (size_t i = 0; i < writes.size(); ++i) {
    writes[i].peer = peer;
    writes[i].region = region_;
    writes[i].source = Bytes(memory_).first(64);
    writes[i].context = 40 + i;
  }
  at_[0]->takes_at_once = 3;
  EXPECT_EQ(domain_->post_writes(writes), 3u);
  EXPECT_EQ(at_[0]->batches, Counts{4});
  EXPECT_EQ(counts(), (Counts{3, 0, 0}));
  EXPECT_EQ(domain_->post_writes(std::span(writes).subspan(3)), 1u);
  at_[0]->end_all(true);
  std::vector<uint64_t> contexts;
  for (const Completion& completion : poll()) contexts.push_back(completion.context);
  EXPECT_EQ(contexts, (std::vector<uint64_t>{40, 41, 42, 43}));
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(post(peer, kSmall + 1));
  EXPECT_EQ(counts(), (Counts{1, 1, 1})) << "the first is idle again";
}

TEST_F(EndpointsTest, APeerWithFewerEndpointsIsReachedOverAsMany) {
  const uint32_t one = connect(0), two = connect(1);
  for (int i = 0; i < 4; ++i) ASSERT_TRUE(post(one, 1000));
  EXPECT_EQ(counts(), (Counts{4, 0, 0}));
  for (int i = 0; i < 4; ++i) ASSERT_TRUE(post(two, 1000));
  EXPECT_EQ(counts(), (Counts{4, 4, 0}));
}

TEST_F(EndpointsTest, WhatOneHasNoRoomForTakesAnother) {
  const uint32_t peer = connect(2);
  at_[0]->is_full = at_[1]->is_full = true;
  ASSERT_TRUE(post(peer, 1000));
  EXPECT_EQ(counts(), (Counts{0, 0, 1}));
  at_[2]->is_full = true;
  EXPECT_FALSE(post(peer, 1000));
  at_[0]->is_full = at_[1]->is_full = at_[2]->is_full = false;
  ASSERT_TRUE(post(peer, 1000));
  ASSERT_TRUE(post(peer, 1000));
  EXPECT_EQ(counts(), (Counts{1, 1, 1})) << "what was refused does not count";
}

TEST_F(EndpointsTest, EachPostingComesBackWithItsOwnContext) {
  const uint32_t peer = connect(2);
  for (const uint64_t context : {40u, 41u, 42u}) ASSERT_TRUE(post(peer, 1000, context));
  ASSERT_TRUE(domain_->post_receive(region_, memory_, 43));
  for (FakeEndpoint* endpoint : at_) endpoint->end_all(true);
  at_[0]->ended.push_back({Event::kReceived, true, 0, 9, at_[0]->receives.front()});
  at_[1]->ended.push_back({Event::kImmediate, true, 5, 0, 0, 3});
  std::vector<uint64_t> contexts;
  for (const Completion& completion : poll()) {
    if (completion.event == Event::kImmediate)
      EXPECT_EQ(completion.immediate * 10 + completion.slices, 53u);
    else
      contexts.push_back(completion.context);
  }
  std::sort(contexts.begin(), contexts.end());
  EXPECT_EQ(contexts, (std::vector<uint64_t>{40, 41, 42, 43}));
}

class WayTest : public EndpointsTest {
 protected:
  void SetUp() override {
    EndpointsTest::SetUp();
    peer_ = connect(1);
  }
  /// `count` writes over the second endpoint end at once.
  void end_second(bool ok, int count = 1) {
    at_[0]->is_full = true;
    for (int i = 0; i < count; ++i) {
      ASSERT_TRUE(post(peer_, 1000));
    }
    at_[0]->is_full = false;
    at_[1]->end_all(ok);
    while (!poll().empty()) {
    }
  }
  /// How many writes pass over the second endpoint until it carries one again, which fails.
  size_t passes() {
    for (size_t passed = 0; passed < 10'000; ++passed) {
      EXPECT_TRUE(post(peer_, 4000));
      if (at_[1]->writes.empty()) continue;
      at_[1]->end_all(false);
      (void)poll();
      return passed;
    }
    return kForGood;
  }
  static constexpr size_t kForGood = ~size_t{0};
  uint32_t peer_ = 0;
};

TEST_F(WayTest, AWayThatBreaksRestsLongerEachTimeAndIsThenLeft) {
  end_second(false, 5);
  EXPECT_EQ(passes(), WayHealth::kRestWrites) << "five writes fail by one break";
  EXPECT_EQ(passes(), 2 * WayHealth::kRestWrites);
  EXPECT_EQ(passes(), 4 * WayHealth::kRestWrites);
  EXPECT_EQ(passes(), kForGood);
}

TEST_F(WayTest, ASuccessForgivesTheBreaksBeforeIt) {
  for (int i = 0; i < 10; ++i) {
    end_second(false);
    for (size_t writes = 0; writes < WayHealth::kRestWrites; ++writes) {
      ASSERT_TRUE(post(peer_, 4000));
    }
    ASSERT_TRUE(at_[1]->writes.empty());
    end_second(true);
    end_all();
  }
}

TEST_F(WayTest, AWayOnWhichNothingEndsRestsUntilSomethingDoes) {
  at_[0]->is_full = true;
  ASSERT_TRUE(post(peer_, 1000));
  at_[0]->is_full = false;
  const auto write_over_others = [&](uint32_t count) {
    for (uint32_t i = 0; i < count; ++i) {
      ASSERT_TRUE(post(peer_, 200));
      at_[0]->end_all(true);
      (void)poll();
    }
  };
  write_over_others(WayHealth::kSilentWrites);
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(post(peer_, 4000));
  EXPECT_EQ(counts(), (Counts{3, 1, 0})) << "it holds one write";
  end_all();
  ASSERT_TRUE(post(peer_, 4000));
  ASSERT_TRUE(post(peer_, 4000));
  EXPECT_EQ(counts(), (Counts{1, 1, 0}));
}

TEST_F(EndpointsTest, MemoryHasOneNameAtAllEndpoints) {
  const uint32_t door = domain_->open_door().value();
  const auto expect_one_name = [&](uint32_t region) {
    const RemoteRange range = domain_->remote_range(region);
    for (const FakeEndpoint* endpoint : at_) EXPECT_EQ(endpoint->regions.rbegin()->second, range);
  };
  expect_one_name(domain_->add_region(memory_, Access::kRemoteWrite).value());
  expect_one_name(domain_->add_door_region(door, memory_).value());
}

TEST_F(EndpointsTest, ARegionThatOneCannotAddIsAtNone) {
  const uint32_t door = domain_->open_door().value();
  at_[2]->refuses_twins = true;
  const auto regions = [&] {
    Counts all;
    for (const FakeEndpoint* endpoint : at_) all.push_back(endpoint->regions.size());
    return all;
  };
  const Counts before = regions();
  EXPECT_FALSE(domain_->add_region(memory_, Access::kRemoteWrite).ok());
  EXPECT_FALSE(domain_->add_door_region(door, memory_).ok());
  EXPECT_EQ(regions(), before);
  at_[2]->refuses_twins = false;
  const uint32_t added = domain_->add_door_region(door, memory_).value();
  EXPECT_NE(regions(), before);
  domain_->remove_region(added);
  EXPECT_EQ(regions(), before);
}

TEST_F(EndpointsTest, DoorsBeyondTheLimitAreOpenAtTheFirstAlone) {
  std::vector<uint32_t> doors;
  for (size_t i = 0; i < kDoorsMax + 1; ++i) doors.push_back(domain_->open_door().value());
  EXPECT_EQ(domain_->further_door_addresses(doors[0]).size(), 2u);
  EXPECT_EQ(domain_->further_door_addresses(doors.back()).size(), 0u);
  EXPECT_TRUE(domain_->add_door_region(doors.back(), memory_).ok());
  EXPECT_EQ(at_[1]->doors, kDoorsMax);
  domain_->close_door(doors[0]);
  const uint32_t later = domain_->open_door().value();
  EXPECT_EQ(domain_->further_door_addresses(later).size(), 2u) << "its place is free again";
}

TEST_F(EndpointsTest, ADoorIsOverOnceItIsOverAtAll) {
  const uint32_t door = domain_->open_door().value();
  at_[2]->drains = Drain::kEnding;
  domain_->close_door(door);
  EXPECT_EQ(domain_->drain_door(door), Drain::kEnding);
  (void)domain_->open_door();  // which looks at what has ended
  EXPECT_EQ(domain_->drain_door(door), Drain::kEnding);
  at_[2]->drains = Drain::kOver;
  EXPECT_EQ(domain_->drain_door(door), Drain::kOver);
}

TEST_F(EndpointsTest, APeerLeavesAllEndpoints) {
  const uint32_t peer = connect(2);
  ASSERT_TRUE(post(peer, 1000));
  ASSERT_TRUE(post(peer, 1000));
  domain_->abandon(peer, Absence::kSilent);
  for (const FakeEndpoint* endpoint : at_) EXPECT_EQ(endpoint->abandoned.size(), 1u);
  domain_->disconnect(peer);
  for (const FakeEndpoint* endpoint : at_) EXPECT_EQ(endpoint->disconnected.size(), 1u);
  at_[0]->connected.clear();  // its number is used again
  ASSERT_EQ(connect(0), peer);
  EXPECT_EQ(domain_->ways(peer), 1u);
  at_[1]->end_all(false);
  EXPECT_EQ(poll().size(), 1u) << "what was under way comes back";
}

TEST_F(EndpointsTest, PeersBeyondTheLimitAreReachedOverTheFirstAlone) {
  std::vector<uint32_t> peers;
  for (size_t i = 0; i < kDoorsMax + 1; ++i) peers.push_back(connect(2));
  EXPECT_EQ(domain_->ways(peers[0]), kCount);
  EXPECT_EQ(domain_->ways(peers.back()), 1u);
  EXPECT_EQ(at_[1]->connected.size(), kDoorsMax);
  domain_->disconnect(peers[0]);
  EXPECT_EQ(domain_->ways(connect(2)), kCount) << "there is room again";
}

}  // namespace
}  // namespace braid::fabric
