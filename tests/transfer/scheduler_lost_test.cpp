// What it costs when many peers are lost at once: each has requests of many batches that wait.
#include <gtest/gtest.h>

#include <algorithm>

#include "scheduler_rails.h"
#include "support/cpu_time.h"

namespace braid::transfer {
namespace {

constexpr uint32_t kBatches = 20;  // of each peer
constexpr uint64_t kPeersMax = 4000;

/// Peers with one path each, all over one rail of this host. More waits than that rail can post.
struct Peers {
  explicit Peers(uint64_t peers) : count(peers) {
    const uint32_t local = scheduler.add_rail({10});
    for (uint64_t peer = 0; peer < count; ++peer) {
      paths.push_back(scheduler.add_path({peer, local, scheduler.add_rail({10}), 10, 5}));
      const uint32_t ways = scheduler.add_ways({{paths.back(), 0}});
      for (uint32_t batch = 0; batch < kBatches; ++batch) {
        RequestSpec request = request_of(peer * kBatches + batch + 1, 1 << 20, ways);
        request.peer = peer;
        request.source = batch;
        scheduler.add(request, 0);
      }
    }
  }
  void post(uint64_t now_ns) {
    while (scheduler.next(now_ns)) {
    }
  }
  /// All requests have ended with that outcome.
  void expect_all(Outcome outcome) {
    uint64_t ends = 0;
    while (const auto event = scheduler.next_event()) {
      const auto* ended = std::get_if<RequestEnded>(&*event);
      ends += ended != nullptr && ended->outcome == outcome ? 1 : 0;
    }
    EXPECT_EQ(ends, count * kBatches);
    EXPECT_EQ(scheduler.request_count(), 0u);
  }

  const uint64_t count;
  Scheduler scheduler;
  std::vector<uint32_t> paths;
};

/// CPU time for each peer where the processes of all have ended.
double seconds_of_loss(uint64_t count) {
  Peers peers(count);
  const double begun_s = braid::test::cpu_seconds(CLOCK_THREAD_CPUTIME_ID);
  for (uint64_t peer = 0; peer < count; ++peer) peers.scheduler.peer_lost(peer, 0);
  const double took_s = braid::test::cpu_seconds(CLOCK_THREAD_CPUTIME_ID) - begun_s;
  peers.expect_all(Outcome::kPeerLost);
  return took_s / static_cast<double>(count);
}

/// The same where the network to all is away for too long.
double seconds_out_of_reach(uint64_t count) {
  Peers peers(count);
  const double begun_s = braid::test::cpu_seconds(CLOCK_THREAD_CPUTIME_ID);
  for (const uint32_t path : peers.paths) peers.scheduler.path_failed(path, 0);
  peers.post(0);
  peers.post(RetryRules().unreachable_ns);
  const double took_s = braid::test::cpu_seconds(CLOCK_THREAD_CPUTIME_ID) - begun_s;
  peers.expect_all(Outcome::kUnreachable);
  return took_s / static_cast<double>(count);
}

/// CPU time for each pair of a NIC that is at fault: two have failed, and none has delivered since.
double seconds_of_a_nic_at_fault(uint64_t count) {
  Scheduler scheduler;
  const uint32_t local = scheduler.add_rail({10});
  std::vector<uint32_t> paths;
  for (uint64_t peer = 0; peer < count; ++peer)
    paths.push_back(scheduler.add_path({peer, local, scheduler.add_rail({10}), 10, 5}));
  const double begun_s = braid::test::cpu_seconds(CLOCK_THREAD_CPUTIME_ID);
  scheduler.path_failed(paths[0], 0);
  scheduler.path_failed(paths[1], 0);
  const double took_s = braid::test::cpu_seconds(CLOCK_THREAD_CPUTIME_ID) - begun_s;
  uint64_t suspects = 0;
  while (const auto event = scheduler.next_event()) {
    const auto* changed = std::get_if<PathChanged>(&*event);
    suspects += changed != nullptr && changed->to == PathState::kSuspect ? 1 : 0;
  }
  EXPECT_EQ(suspects, count - 2);
  return took_s / static_cast<double>(count);
}

/// The shortest of several runs: the first ones pay for memory that is new.
double shortest(double (*run)(uint64_t), uint64_t count) {
  double shortest_s = run(count);
  for (int i = 0; i < 2; ++i) shortest_s = std::min(shortest_s, run(count));
  return shortest_s;
}

// Each peer costs what waits for it. An engine that stood still for long would be given up by the
// peers that it still has. Each of kPeersMax would cost 400 times as much, if it looked at all.
void expect_the_same_however_many(double (*run)(uint64_t)) {
  const double few_s = shortest(run, 10), many_s = shortest(run, kPeersMax);
  EXPECT_LE(many_s, 15 * few_s) << few_s << " s and " << many_s << " s a peer";
}

TEST(Scheduler, APeerThatIsLostCostsAboutTheSameHoweverManyAreLost) {
  expect_the_same_however_many(seconds_of_loss);
}

TEST(Scheduler, APeerOutOfReachCostsAboutTheSameHoweverManyAreOutOfReach) {
  expect_the_same_however_many(seconds_out_of_reach);
}

// The pairs that are judged do not judge their NIC in turn, each of them all the others.
TEST(Scheduler, APairOfANicAtFaultCostsAboutTheSameHoweverManyItHas) {
  const double few_s = shortest(seconds_of_a_nic_at_fault, 100),
               many_s = shortest(seconds_of_a_nic_at_fault, kPeersMax);
  EXPECT_LE(many_s, 8 * few_s) << few_s << " s and " << many_s << " s a pair";
}

}  // namespace
}  // namespace braid::transfer
