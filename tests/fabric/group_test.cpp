// Scatters and barriers of engines on every kind of wire.
#include <gtest/gtest.h>

#include <cstring>

#include "fabric/engine.h"
#include "fabric/wires.h"

namespace braid::fabric {
namespace {

using test::some_bytes;

constexpr uint64_t kSecondNs = 1'000'000'000;
constexpr int kStepsMax = 5'000'000;
constexpr size_t kMembers = 3;

/// One engine and three others, all connected.
class GroupTest : public testing::TestWithParam<test::WireKind> {
 protected:
  /// How one engine knows another.
  struct Pair {
    uint64_t peer = 0;
    uint32_t immediate = 0;  // acquired here, for the other to send
  };

  void SetUp() override {
    wire_ = GetParam().make();
    for (size_t i = 0; i <= kMembers; ++i) engines_.push_back(open(i == 0 ? 0 : 1, 100 + i));
    for (size_t i = 0; i <= kMembers; ++i)
      for (size_t j = 0; j < i; ++j)
        ASSERT_TRUE(engines_[i]->connect(engines_[j]->address(), deadline()).ok());
    ASSERT_TRUE(wait([&] { return are_all_connected(); }));
    for (size_t i = 0; i <= kMembers; ++i)
      for (size_t j = 0; j <= kMembers; ++j)
        if (i != j) pairs_[i][j] = {peer(i, j), engines_[i]->counters().acquire().value()};
  }

  std::unique_ptr<Engine> open(int side, uint64_t engine) {
    EngineOptions options;
    options.engine = engine;
    std::vector<std::unique_ptr<Domain>> domains;
    domains.push_back(wire_->open(side));
    domains.push_back(wire_->open(side));
    return Engine::open(std::move(domains), options).value();
  }
  uint64_t peer(size_t i, size_t j) { return engines_[i]->find_peer(100 + j).value(); }
  bool are_all_connected() {
    for (size_t i = 0; i <= kMembers; ++i)
      for (size_t j = 0; j <= kMembers; ++j)
        if (i != j && (!engines_[i]->find_peer(100 + j) ||
                       engines_[i]->peer_state(peer(i, j)).value() != PeerState::kConnected))
          return false;
    return true;
  }
  uint64_t now_ns() { return wire_->now_ns() + leapt_ns_; }
  uint64_t deadline(double seconds = 20) {
    return now_ns() + static_cast<uint64_t>(seconds * kSecondNs);
  }
  /// To the engines it is as if their process had stood still for so long.
  void leap(double seconds) { leapt_ns_ += static_cast<uint64_t>(seconds * kSecondNs); }
  bool wait(const std::function<bool()>& until) {
    for (test::Patience patience(kStepsMax); !patience.is_over();) {
      if (until()) return true;
      for (size_t i = 0; i < engines_.size(); ++i)
        if (i != silent_) engines_[i]->step(now_ns());
      wire_->pass_time();
    }
    return until();
  }
  /// All but one member have been served, or it has ended.
  bool waits_for_one(size_t engine, uint64_t ticket) {
    return wait([&] {
      return engines_[engine]->missing(ticket).value().size() == 1 ||
             engines_[engine]->state(ticket).value() != TicketState::kPending;
    });
  }
  TicketState end_of(size_t engine, uint64_t ticket) {
    wait([&] { return engines_[engine]->state(ticket).value() != TicketState::kPending; });
    return engines_[engine]->state(ticket).value();
  }

  /// A group of engine 0: the others, each with `size_bytes` of memory.
  void make_targets(size_t size_bytes) {
    for (size_t i = 1; i <= kMembers; ++i) {
      memories_.emplace_back(size_bytes);
      const uint64_t region = engines_[i]->add_region(memories_.back()).value();
      const Granted granted = engines_[i]->grant(region, pairs_[i][0].peer, 0, size_bytes).value();
      grants_.push_back(granted.grant);
      members_.push_back(
          {pairs_[0][i].peer, engines_[0]->open_target(granted.descriptor).value(), 0, 0});
      immediates_.push_back(engines_[i]->counters().acquire().value());
    }
  }
  uint64_t barrier_group(size_t engine) {
    std::vector<GroupMember> members;
    for (size_t other = 0; other <= kMembers; ++other)
      if (other != engine)
        members.push_back({pairs_[engine][other].peer, 0, pairs_[other][engine].immediate,
                           pairs_[engine][other].immediate});
    return engines_[engine]->add_group(members).value();
  }

  std::unique_ptr<test::Wire> wire_;
  std::vector<std::unique_ptr<Engine>> engines_;
  Pair pairs_[kMembers + 1][kMembers + 1];
  size_t silent_ = ~size_t{0};
  uint64_t leapt_ns_ = 0;
  std::vector<std::vector<std::byte>> memories_;
  std::vector<uint64_t> grants_;
  std::vector<GroupMember> members_;
  std::vector<uint32_t> immediates_;
};

TEST_P(GroupTest, AScatterBringsEachMemberItsPartAndItsImmediates) {
  constexpr uint64_t kSizes[kMembers] = {700'001, 0, 3};
  make_targets(800'000);
  auto source = some_bytes(1'000'000, 1);
  const uint64_t from = engines_[0]->add_region(source).value();
  const uint64_t group = engines_[0]->add_group(members_).value();
  std::vector<Part> parts;
  for (size_t i = 0; i < kMembers; ++i)
    parts.push_back({{i * 1000, i * 10, kSizes[i]}, immediates_[i]});
  const uint64_t ticket = engines_[0]->scatter(from, group, parts, deadline()).value();
  ASSERT_EQ(end_of(0, ticket), TicketState::kDone);
  EXPECT_TRUE(engines_[0]->missing(ticket).value().empty());
  ASSERT_TRUE(wait([&] {
    for (size_t i = 0; i < kMembers; ++i)
      if (engines_[i + 1]->counters().count(immediates_[i]) != immediates_of_write(kSizes[i]))
        return false;
    return true;
  }));
  for (size_t i = 0; i < kMembers; ++i) {
    std::vector<std::byte> expected(memories_[i].size());
    std::memcpy(expected.data() + i * 10, source.data() + i * 1000, kSizes[i]);
    EXPECT_TRUE(memories_[i] == expected) << i;
  }
  EXPECT_TRUE(engines_[0]->remove_region(from).ok()) << "nothing reads it any more";
  engines_[0]->forget(ticket);
  EXPECT_FALSE(engines_[0]->state(ticket).ok());
}

TEST_P(GroupTest, AScatterThatIsWrongInOnePartWritesNothing) {
  make_targets(1000);
  auto source = some_bytes(1000, 2);
  const uint64_t from = engines_[0]->add_region(source).value();
  const uint64_t group = engines_[0]->add_group(members_).value();
  std::vector<Part> parts(kMembers, {{0, 0, 1000}, {}});
  parts[2].slice.target_offset_bytes = 1;
  EXPECT_EQ(engines_[0]->scatter(from, group, parts, deadline()).status().message(),
            "part 2: the target lies outside the 1000 bytes that were granted");
  parts.pop_back();
  EXPECT_EQ(engines_[0]->scatter(from, group, parts, deadline()).status().message(),
            "the scatter has 2 parts, and its group has 3 members");
  parts.resize(kMembers, {{0, 0, 1000}, {}});
  ASSERT_TRUE(engines_[2]->revoke(grants_[1], deadline()).ok());
  ASSERT_TRUE(wait([&] { return engines_[2]->fence(grants_[1]).value() == Fence::kFenced; }));
  const auto refused = engines_[0]->scatter(from, group, parts, deadline());
  EXPECT_EQ(refused.status().message().find("member 1, peer "), 0u);
  wait([steps = 2000]() mutable { return --steps == 0; });
  for (const auto& memory : memories_) EXPECT_EQ(memory, std::vector<std::byte>(1000));
  EXPECT_TRUE(engines_[0]->remove_region(from).ok());
}

TEST_P(GroupTest, AScatterThatFailsNamesThePeerAndServesTheOthers) {
  make_targets(100'000);
  silent_ = 2;
  auto source = some_bytes(100'000, 3);
  const uint64_t from = engines_[0]->add_region(source).value();
  const uint64_t group = engines_[0]->add_group(members_).value();
  const std::vector<Part> parts(kMembers, {{0, 0, source.size()}, {}});
  const uint64_t ticket = engines_[0]->scatter(from, group, parts, deadline()).value();
  ASSERT_TRUE(waits_for_one(0, ticket));
  const std::string& name = GetParam().name;
  if (name == "simulated" || name == "simulated_endpoints") {  // it needs no CPU of the peer
    EXPECT_EQ(end_of(0, ticket), TicketState::kDone);
    return;
  }
  leap(20);
  const TicketState state = end_of(0, ticket);
  EXPECT_TRUE(state == TicketState::kFailed || state == TicketState::kQuarantined);
  EXPECT_EQ(engines_[0]->failure(ticket), Failure::kDeadline);
  EXPECT_EQ(engines_[0]->missing(ticket).value(), std::vector<uint64_t>{members_[1].peer});
  EXPECT_TRUE(memories_[0] == source);
  EXPECT_TRUE(memories_[2] == source);
}

TEST_P(GroupTest, ABarrierIsDoneWhenTheLastMemberHasCome) {
  std::vector<uint64_t> groups;
  for (size_t i = 0; i <= kMembers; ++i) groups.push_back(barrier_group(i));
  for (int round = 0; round < 5; ++round) {
    std::vector<uint64_t> tickets;
    for (size_t i = 0; i <= kMembers; ++i) {
      for (size_t j = 0; j < i; ++j)
        EXPECT_EQ(engines_[j]->state(tickets[j]).value(), TicketState::kPending) << round;
      tickets.push_back(engines_[i]->barrier(groups[i], deadline()).value());
      EXPECT_FALSE(engines_[i]->barrier(groups[i], deadline()).ok()) << "one at a time";
      wait([steps = 300]() mutable { return --steps == 0; });
    }
    for (size_t i = 0; i <= kMembers; ++i) {
      EXPECT_EQ(end_of(i, tickets[i]), TicketState::kDone);
      engines_[i]->forget(tickets[i]);
    }
  }
  for (size_t i = 0; i <= kMembers; ++i) {
    EXPECT_FALSE(engines_[i]->release_immediate(pairs_[i][(i + 1) % 4].immediate, 0).ok());
    EXPECT_TRUE(engines_[i]->remove_group(groups[i]).ok());
    EXPECT_TRUE(engines_[i]->release_immediate(pairs_[i][(i + 1) % 4].immediate, 0).ok());
  }
}

TEST_P(GroupTest, ImmediatesOfAGroupThatHasMetServeNoOther) {
  const auto meet = [&] {
    std::vector<uint64_t> groups, tickets;
    for (size_t i = 0; i <= kMembers; ++i) groups.push_back(barrier_group(i));
    for (size_t i = 0; i <= kMembers; ++i)
      tickets.push_back(engines_[i]->barrier(groups[i], deadline()).value());
    for (size_t i = 0; i <= kMembers; ++i) {
      EXPECT_EQ(end_of(i, tickets[i]), TicketState::kDone);
      EXPECT_TRUE(engines_[i]->remove_group(groups[i]).ok());
    }
  };
  EXPECT_TRUE(engines_[0]->remove_group(barrier_group(0)).ok());
  meet();  // nobody had come to the one before
  const auto [peer, used] = pairs_[0][1];
  const std::string number = std::to_string(used);
  EXPECT_EQ(engines_[0]->add_group({{peer, 0, pairs_[1][0].immediate, used}}).status().message(),
            "member 0, peer " + std::to_string(peer) + ": immediate " + number +
                " has served another group. Release it and acquire another");
  for (size_t i = 0; i <= kMembers; ++i)
    for (size_t j = 0; j <= kMembers; ++j) {
      if (i == j) continue;
      ASSERT_TRUE(engines_[i]->release_immediate(pairs_[i][j].immediate, 0).ok());
      pairs_[i][j].immediate = engines_[i]->counters().acquire().value();
    }
  meet();
}

TEST_P(GroupTest, ABarrierNamesWhoIsMissingAtItsDeadline) {
  std::vector<uint64_t> groups;
  for (size_t i = 0; i <= kMembers; ++i) groups.push_back(barrier_group(i));
  const uint64_t ticket = engines_[0]->barrier(groups[0], deadline()).value();
  for (size_t i = 1; i < kMembers; ++i)
    ASSERT_TRUE(engines_[i]->barrier(groups[i], deadline()).ok());  // all but the last
  ASSERT_TRUE(waits_for_one(0, ticket));
  leap(20);
  // What it says itself may still be under way, and is quarantined until then.
  EXPECT_TRUE(wait([&] { return engines_[0]->state(ticket).value() == TicketState::kFailed; }));
  EXPECT_EQ(engines_[0]->failure(ticket), Failure::kDeadline);
  EXPECT_EQ(engines_[0]->missing(ticket).value(), std::vector<uint64_t>{pairs_[0][kMembers].peer});
  EXPECT_EQ(engines_[0]->barrier(groups[0], deadline()).status().message(),
            "a barrier of this group has failed: its members may have lost count. Make another "
            "group, with other immediates");
}

TEST_P(GroupTest, ABarrierFailsWhenAMemberIsDisconnected) {
  const uint64_t group = barrier_group(0);
  const uint64_t ticket = engines_[0]->barrier(group, deadline()).value();
  for (size_t i = 2; i <= kMembers; ++i)
    ASSERT_TRUE(engines_[i]->barrier(barrier_group(i), deadline()).ok());
  ASSERT_TRUE(engines_[0]->disconnect(pairs_[0][1].peer).ok());
  EXPECT_EQ(end_of(0, ticket), TicketState::kFailed);
  EXPECT_EQ(engines_[0]->failure(ticket), Failure::kDisconnected);
  EXPECT_EQ(engines_[0]->missing(ticket).value(), std::vector<uint64_t>{pairs_[0][1].peer});
}

TEST_P(GroupTest, AGroupThatIsWrongIsRefusedWithTheCause) {
  const auto refusal = [&](GroupMember member) {
    return engines_[0]->add_group({members_[0], member}).status().message();
  };
  make_targets(10);
  const uint64_t peer = members_[1].peer;
  const std::string who = "member 1, peer " + std::to_string(peer) + ": ";
  EXPECT_EQ(engines_[0]->add_group({}).status().message(), "a group has at least one member");
  EXPECT_EQ(refusal({peer, members_[0].target, 0, 0}), who + "its target is another peer's memory");
  EXPECT_EQ(refusal({peer, 12345, 0, 0}), who + "there is no such target (any more)");
  EXPECT_EQ(refusal({peer, 0, 5, 0}), who + "a barrier needs an immediate of each side");
  EXPECT_EQ(refusal({peer, 0, 5, 5}),
            who + "this engine has not acquired the immediate that the peer is to send");
  const uint32_t here = pairs_[0][1].immediate;
  members_[0].immediate_here = members_[0].immediate_there = here;
  EXPECT_EQ(refusal({peer, 0, 5, here}),
            who + "the immediate that the peer is to send is another member's");
  EXPECT_EQ(refusal({12345, 0, 0, 0}), "member 1, peer 12345: the peer is not connected");
}

INSTANTIATE_TEST_SUITE_P(Wires, GroupTest, testing::ValuesIn(test::wire_kinds()),
                         test::name_of_wire);

}  // namespace
}  // namespace braid::fabric
