// Rails that do not reach some memory, or fall silent, beside one that works: requests end well,
// and a rail that works is used on.
#include <gtest/gtest.h>

#include <algorithm>

#include "transfer/engine.h"
#include "transfer/pattern.h"
#include "transfer/rail_net.h"

namespace braid::transfer::test {
namespace {

constexpr size_t kBytes = 1 << 20;
constexpr double kLongUs = 30'000'000;
const Place kNode0{false, 0, -1, -1}, kNode1{false, 1, -1, -1};

/// An engine with two rails.
struct Host {
  Host(RailNet& net, const Incarnation& who, const char* name) {
    auto owned = std::make_unique<Owned>();
    owned->jobs = std::make_unique<JobsAtOnce>();
    EngineOptions options;
    options.incarnation = who;
    std::vector<std::unique_ptr<Rail>> rails;
    std::vector<RailDescription> descriptions;
    const int host = net.add_host();
    for (auto& domain : domains) {
      auto opened = net.open_domain(host);
      domain = opened.get();
      rails.push_back(Rail::open(std::move(opened), who, {}, nullptr, *owned).value());
      descriptions.push_back({"sim", name, 1, {}, rails.back()->address()});
    }
    engine = std::make_unique<Engine>(std::move(owned), std::move(rails), std::move(descriptions),
                                      options);
    net.also([this](uint64_t now_ns) {
      while (engine->step(now_ns)) {
      }
    });
  }

  const fabric::Domain* domains[2] = {};
  std::unique_ptr<Engine> engine;
};

/// Two such hosts; the owner has two buffers, one on each node.
class TransferAccess : public testing::Test {
 protected:
  ~TransferAccess() override { net.stop(); }

  void open_segment() {
    for (std::vector<std::byte>& each : theirs)
      ASSERT_TRUE(owner.engine->add_buffer(each, kMayRead | kMayWrite).ok());
    ASSERT_TRUE(engine.add_buffer(memory, kNoRights).ok());
    Description description = owner.engine->describe();
    description.places = {{kNode0, 3}, {kNode1, 3}};
    for (RangeDescription& range : description.ranges) range.place = range.address == address(1);
    segment = engine.open_segment(description).value();
    ASSERT_TRUE(net.run(kLongUs, [&] { return engine.ways_up(segment).first == 2; }));
  }
  uint64_t address(size_t node) const { return reinterpret_cast<uint64_t>(theirs[node].data()); }

  /// The cause of one request, whose bytes are compared if it is done.
  Cause move(Operation operation, size_t node) {
    const bool is_write = operation == Operation::kWrite;
    const MutableBytes here = std::span(memory).first(kBytes), there = theirs[node];
    fill(is_write ? here : there, ++seed);
    const uint64_t batch =
        engine.submit({{segment, operation, memory.data(), address(node), kBytes}}, std::nullopt)
            .value();
    EXPECT_TRUE(net.run(kLongUs, [&] { return engine.status(batch).value().has_ended(); }));
    const Cause cause = engine.outcomes(batch).value()[0].cause;
    if (cause == Cause::kNone) {
      EXPECT_EQ(wrong_at(is_write ? there : here, seed), std::nullopt) << seed;
    }
    return cause;
  }
  /// What each way has delivered so far.
  std::vector<uint64_t> delivered() const {
    std::vector<uint64_t> bytes;
    for (const PathStatistics& path : engine.paths()) bytes.push_back(path.view.delivered_bytes);
    return bytes;
  }
  /// Whether that way delivers some of one of the next requests.
  bool is_used(size_t way, size_t node) {
    const uint64_t before = delivered()[way];
    for (int i = 0; i < 30 && delivered()[way] == before; ++i) {
      EXPECT_EQ(move(Operation::kWrite, node), Cause::kNone);
      net.run(100'000);
    }
    return delivered()[way] != before;
  }
  uint64_t links_lost() const { return engine.fabric_statistics().links_lost; }

  RailNet net;
  Host owner{net, {1, 1}, "there"}, me{net, {2, 2}, "here"};
  Engine& engine = *me.engine;
  std::vector<std::byte> memory = std::vector<std::byte>(kBytes);
  std::vector<std::byte> theirs[2] = {std::vector<std::byte>(kBytes),
                                      std::vector<std::byte>(kBytes)};
  uint64_t segment = 0, seed = 0;
};

// ---- Memory that a rail has not registered ----

TEST_F(TransferAccess, ARailThatRefusesTheMemoryHereCarriesNothingOfIt) {
  net.network().limit_regions(*me.domains[1], kBytes / 2);
  open_segment();
  for (const Operation operation : {Operation::kRead, Operation::kWrite})
    for (int i = 0; i < 5; ++i) EXPECT_EQ(move(operation, 0), Cause::kNone);
  EXPECT_GT(delivered()[0], 0u);
  EXPECT_EQ(delivered()[1], 0u);
  EXPECT_EQ(engine.statistics().reissued_slices, 0u) << "nothing was tried there";
  ASSERT_EQ(engine.refused_memory().size(), 1u);
}

/// The segment says nothing of it, and the owner registers it with one of its rails alone.
TEST_F(TransferAccess, ARailThatDoesNotReachMemoryThatCameLaterLeavesItToTheOther) {
  open_segment();
  std::vector<std::byte> later(kBytes);
  net.network().limit_regions(*owner.domains[1], kBytes / 2);
  ASSERT_TRUE(owner.engine->add_buffer(later, kMayRead).ok());
  fill(later, 77);
  for (int i = 0; i < 5; ++i) {
    std::fill(memory.begin(), memory.end(), std::byte{});
    const uint64_t batch = engine
                               .submit({{segment, Operation::kRead, memory.data(),
                                         reinterpret_cast<uint64_t>(later.data()), kBytes}},
                                       std::nullopt)
                               .value();
    ASSERT_TRUE(net.run(kLongUs, [&] { return engine.status(batch).value().has_ended(); }));
    EXPECT_EQ(engine.outcomes(batch).value()[0].cause, Cause::kNone);
    EXPECT_EQ(wrong_at(memory, 77), std::nullopt);
  }
  EXPECT_EQ(links_lost(), 0u);
}

// ---- Memory that is registered, and cannot be accessed ----

TEST_F(TransferAccess, WhereAccessFailsAgainAndAgainARailIsLeftOutForThatMemoryAlone) {
  open_segment();
  net.network().deny_access(*owner.domains[1], theirs[1]);
  for (int i = 0; i < 60 && links_lost() < Reach::kConnectionsMax; ++i) {
    EXPECT_EQ(move(Operation::kWrite, 1), Cause::kNone) << i;
    net.run(50'000);  // the rail comes back meanwhile
  }
  ASSERT_EQ(links_lost(), Reach::kConnectionsMax);
  net.run(1'000'000);
  for (int i = 0; i < 20; ++i) EXPECT_EQ(move(Operation::kWrite, 1), Cause::kNone) << i;
  EXPECT_EQ(links_lost(), Reach::kConnectionsMax) << "it is known by now";
  EXPECT_TRUE(is_used(1, 0)) << "the other buffer is within its reach";
  EXPECT_EQ(links_lost(), Reach::kConnectionsMax);

  net.network().allow_access(*owner.domains[1]);
  net.run(static_cast<double>(Reach::kPauseNs) / 1e3);
  EXPECT_TRUE(is_used(1, 1)) << "it is tried again after a pause";
}

TEST_F(TransferAccess, ReadsLearnItToo) {
  open_segment();
  net.network().deny_access(*me.domains[1], memory);
  for (int i = 0; i < 60 && links_lost() < Reach::kConnectionsMax; ++i) {
    EXPECT_EQ(move(Operation::kRead, 1), Cause::kNone) << i;
    net.run(50'000);
  }
  ASSERT_EQ(links_lost(), Reach::kConnectionsMax);
  for (int i = 0; i < 20; ++i) EXPECT_EQ(move(Operation::kRead, 1), Cause::kNone) << i;
  EXPECT_EQ(links_lost(), Reach::kConnectionsMax);
}

/// A key that is no longer good fails as memory does that cannot be accessed. The next connection
/// has another key.
TEST_F(TransferAccess, ABadKeyNowAndThenIsNotHeldAgainstTheRail) {
  open_segment();
  for (int turn = 0; turn < 5; ++turn) {
    const uint64_t before = links_lost();
    net.network().deny_access(*owner.domains[1], theirs[1]);
    for (int i = 0; i < 60 && links_lost() < before + Reach::kConnectionsMax - 1; ++i) {
      EXPECT_EQ(move(Operation::kWrite, 1), Cause::kNone) << turn;
      net.run(50'000);
    }
    ASSERT_EQ(links_lost(), before + Reach::kConnectionsMax - 1) << turn;
    net.network().allow_access(*owner.domains[1]);
    ASSERT_TRUE(is_used(1, 1)) << turn;
  }
}

/// There is nothing better: it is tried until the request has failed often enough.
TEST_F(TransferAccess, TheLastRailIsNotLeftOut) {
  open_segment();
  net.network().deny_access(*owner.domains[0], theirs[1]);
  net.network().deny_access(*owner.domains[1], theirs[1]);
  EXPECT_EQ(move(Operation::kWrite, 1), Cause::kPathFailed);
  net.network().allow_access(*owner.domains[0]);
  net.network().allow_access(*owner.domains[1]);
  net.run(1'000'000);
  EXPECT_EQ(move(Operation::kWrite, 1), Cause::kNone);
}

// ---- A rail that dies without a word, as TCP does ----

TEST_F(TransferAccess, SlicesThatARailSwallowsGoTheOtherWayLongBeforeItIsGivenUp) {
  open_segment();
  fill(memory, 5);
  const uint64_t batch =
      engine.submit({{segment, Operation::kWrite, memory.data(), address(0), kBytes}}, std::nullopt)
          .value();
  net.run(100);  // under way over both
  net.network().cut(*me.domains[1], fabric::sim::Break::kSilent);
  const uint64_t cut_ns = net.now_ns();
  ASSERT_TRUE(net.run(kLongUs, [&] { return engine.status(batch).value().has_ended(); }));
  EXPECT_EQ(engine.outcomes(batch).value()[0].cause, Cause::kNone);
  EXPECT_EQ(wrong_at(theirs[0], 5), std::nullopt);
  EXPECT_GT(engine.statistics().reissued_slices, 0u);
  EXPECT_LT(net.now_ns() - cut_ns, 1'000'000'000u) << "a fraction of the heartbeat's limit";
}

/// No slice is there to be late.
TEST_F(TransferAccess, AnIdleRailThatFallsSilentIsNoticedByItsHeartbeat) {
  open_segment();
  net.run(3'000'000);
  EXPECT_EQ(links_lost(), 0u) << "idle, and not silent";
  net.network().cut(*me.domains[1], fabric::sim::Break::kSilent);
  const fabric::HeartbeatOptions heartbeat;
  net.run(static_cast<double>(heartbeat.limit_ns - heartbeat.interval_ns) / 1e3 - 100'000);
  EXPECT_EQ(links_lost(), 0u);
  net.run(2 * static_cast<double>(heartbeat.interval_ns) / 1e3);
  EXPECT_EQ(links_lost(), 1u);
  EXPECT_EQ(engine.ways_up(segment).first, 1u);
  EXPECT_EQ(move(Operation::kWrite, 0), Cause::kNone);
}

}  // namespace
}  // namespace braid::transfer::test
