// Which of several ways a scheduler uses, when transports differ and when measurements mislead.
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <map>
#include <utility>

#include "scheduler_rails.h"

namespace braid::transfer {
namespace {

TEST(Scheduler, APathOfAnotherTransportTakesOverWhenTheNearOneIsKnownToHaveFailed) {
  Scheduler scheduler;
  const uint32_t near_rail = scheduler.add_rail({10}), far_rail = scheduler.add_rail({1});
  const uint32_t near = scheduler.add_path({kPeer, near_rail, kNoRail, 10, 5});
  const uint32_t far = scheduler.add_path({kPeer, far_rail, kNoRail, 1, 50});
  scheduler.add(request_of(1, 64 << 10, scheduler.add_ways({{near}, {far, 0, 1}})), 0);
  const auto first = scheduler.next(0);
  ASSERT_TRUE(first);
  EXPECT_EQ(first->path, near);
  scheduler.ended(first->id, Ending::kFailed, 1000);
  scheduler.path_failed(near, 1000);
  const auto second = scheduler.next(1000);
  ASSERT_TRUE(second) << "transport layer: another backend, transparently";
  EXPECT_EQ(second->path, far);
  scheduler.ended(second->id, Ending::kDone, 200'000);
  bool is_done = false;
  while (const auto event = scheduler.next_event())
    if (const auto* ended = std::get_if<RequestEnded>(&*event))
      is_done = ended->outcome == Outcome::kDone;
  EXPECT_TRUE(is_done);
}

// The near path looks full and the other one idle and as fast, until the first slice comes late.
TEST(Scheduler, APathOfAnotherTransportTakesNothingWhileABetterOneWorks) {
  Scheduler scheduler;
  const uint32_t near_rail = scheduler.add_rail({5}), far_rail = scheduler.add_rail({5});
  const uint32_t near = scheduler.add_path({kPeer, near_rail, kNoRail, 5, 10});
  const uint32_t far = scheduler.add_path({kPeer, far_rail, kNoRail, 5, 10});
  scheduler.add(request_of(1, 256 << 20, scheduler.add_ways({{far, 0, 1}, {near}})), 0);
  size_t posted = 0;
  while (const auto posting = scheduler.next(0)) {
    EXPECT_EQ(posting->path, near);
    EXPECT_GE(posting->size_bytes, 1u << 20) << "there is one way to spread over";
    ++posted;
  }
  EXPECT_GT(posted, 0u);
  const auto ways = scheduler.explain(0, 1 << 20, Urgency::kBulk, 0);
  ASSERT_EQ(ways.size(), 2u);
  EXPECT_TRUE(ways[0].stands_by);
  EXPECT_FALSE(ways[1].stands_by);
}

// The slice would break the connection there once more.
TEST(Scheduler, AClosedPathTakesNoSliceThatHasFailedOnTheOnlyOtherOne) {
  Scheduler scheduler;
  const uint32_t open = scheduler.add_path({kPeer, scheduler.add_rail({5}), kNoRail, 5, 10});
  const uint32_t closed = scheduler.add_path({kPeer, scheduler.add_rail({5}), kNoRail, 5, 10});
  const uint32_t ways = scheduler.add_ways({{open}, {closed}});
  scheduler.set_closed(ways, closed, true);
  scheduler.add(request_of(1, 64 << 10, ways), 0);
  const auto first = scheduler.next(0);
  ASSERT_TRUE(first);
  EXPECT_EQ(first->path, open);
  scheduler.ended(first->id, Ending::kFailed, 1000);
  uint64_t now_ns = 1000;
  scheduler.path_failed(closed, now_ns);
  const auto is_usable = [&](uint32_t path) {
    const PathState state = scheduler.view(path, now_ns).state;
    return state == PathState::kUp || state == PathState::kRejoining;
  };
  for (int probes = 0; probes < 1000 && !(is_usable(open) && is_usable(closed)); ++probes) {
    now_ns += kMs;
    while (const auto probe = scheduler.next_probe(now_ns))
      scheduler.ended(probe->id, Ending::kDone, now_ns);
  }
  const auto again = scheduler.next(now_ns);
  ASSERT_TRUE(again);
  EXPECT_EQ(again->path, open);
}

// Whoever drives the scheduler copies it itself, and hears of nothing else until that is done.
TEST(Scheduler, AWayThatIsCopiedByItsDriverTakesLittleAtATime) {
  Scheduler scheduler;
  const uint32_t own = scheduler.add_rail({10}), far_rail = scheduler.add_rail({5});
  PathSpec copies{kPeer, own, kNoRail, 10, 1};
  copies.slice_bytes_max = 1 << 20;
  const uint32_t near = scheduler.add_path(copies);
  const uint32_t far = scheduler.add_path({kPeer, far_rail, kNoRail, 5, 10});
  scheduler.add(request_of(1, uint64_t{4} << 30, scheduler.add_ways({{near}, {far, 0, 1}})), 0);
  uint64_t posted_bytes = 0;
  while (const auto posting = scheduler.next(0)) {
    EXPECT_EQ(posting->path, near);
    EXPECT_EQ(posting->size_bytes, 1u << 20);
    posted_bytes += posting->size_bytes;
  }
  EXPECT_LE(posted_bytes, 4u << 20);
}

/// An urgent request may have to wait for what bulk has posted.
TEST(Scheduler, WhileUrgentRequestsComeBulkKeepsARailBusyForAShortTime) {
  struct Case {
    double gbps;
    uint64_t slice_bytes;
  };
  for (const Case& one : {Case{10, 64 << 10}, Case{0.05, 20'000}, Case{0.001, 16 << 10}}) {
    Scheduler scheduler;
    const uint32_t rail = scheduler.add_rail({one.gbps});
    const uint32_t path = scheduler.add_path({kPeer, rail, kNoRail, one.gbps, 10});
    const uint32_t ways = scheduler.add_ways({{path}});
    RequestSpec urgent = request_of(1, 4096, ways);
    urgent.urgency = Urgency::kUrgent;
    scheduler.add(std::move(urgent), 0);
    scheduler.ended(scheduler.next(0)->id, Ending::kDone, 20'000);
    scheduler.add(request_of(2, 256 << 20, ways), kMs);
    const auto beside = scheduler.next(kMs);
    ASSERT_TRUE(beside);
    EXPECT_EQ(beside->size_bytes, one.slice_bytes) << one.gbps << " GB/s";
    scheduler.ended(beside->id, Ending::kDone, 2 * kMs);
    const auto later = scheduler.next(500 * kMs);
    ASSERT_TRUE(later);
    EXPECT_GT(later->size_bytes, 64u << 10) << "no urgent request has come for a while";
  }
}

/// How many bytes of each request a rail of 10 GB/s delivers in 50 ms, one slice after the other.
std::map<uint64_t, uint64_t> delivered_by_one_rail(Rails& rails) {
  std::deque<std::pair<double, Posting>> under_way;
  std::map<uint64_t, uint64_t> delivered;
  double free_ns = 0;
  for (uint64_t now_ns = 0; now_ns < 50 * kMs; now_ns += 1000) {
    while (!under_way.empty() && under_way.front().first <= static_cast<double>(now_ns)) {
      const Posting ended = under_way.front().second;
      under_way.pop_front();
      delivered[ended.request] += ended.size_bytes;
      rails.scheduler.ended(ended.id, Ending::kDone, now_ns);
    }
    for (const Posting& posting : rails.post(now_ns)) {
      free_ns = std::max(free_ns, static_cast<double>(now_ns)) +
                static_cast<double>(posting.size_bytes) / 10;
      under_way.emplace_back(free_ns + 5000, posting);
    }
  }
  return delivered;
}

TEST(Scheduler, BulkKeepsATwentiethOfARailThatUrgentRequestsFill) {
  Rails rails(1);
  rails.add(1, uint64_t{4} << 30);
  RequestSpec urgent = request_of(2, uint64_t{4} << 30);
  urgent.urgency = Urgency::kUrgent;
  rails.scheduler.add(std::move(urgent), 0);
  std::map<uint64_t, uint64_t> delivered = delivered_by_one_rail(rails);
  const auto bulk_bytes = static_cast<double>(delivered[1]);
  const auto urgent_bytes = static_cast<double>(delivered[2]);
  EXPECT_GT(urgent_bytes + bulk_bytes, 450e6) << "the rail carries 500 MB";
  EXPECT_GT(bulk_bytes, (urgent_bytes + bulk_bytes) / 25);
  EXPECT_LT(bulk_bytes, (urgent_bytes + bulk_bytes) / 16);
}

// Seen on four limited links: what the first slice of a new connection took kept its rail unused.
TEST(Scheduler, ARailWhoseFirstSliceWasSlowIsMeasuredAgainAndUsed) {
  Rails rails(2);
  constexpr uint64_t kStepNs = kMs / 4, kSlowNs = 3 * kMs;
  std::multimap<uint64_t, Posting> under_way;
  std::map<uint32_t, uint64_t> free_ns, delivered;
  uint64_t probes = 0, requests = 0, done = 0;
  for (uint64_t now_ns = 0; now_ns < 300 * kMs; now_ns += kStepNs) {
    while (!under_way.empty() && under_way.begin()->first <= now_ns) {
      const Posting ended = under_way.begin()->second;
      under_way.erase(under_way.begin());
      rails.scheduler.ended(ended.id, Ending::kDone, now_ns);
      ++done;
      if (now_ns > 150 * kMs) ++delivered[ended.path];
    }
    // What waits is there in less time than the slow one seems to take.
    while (requests < done + 6) rails.add(++requests, 8 << 10, now_ns);
    for (const Posting& posting : rails.post(now_ns)) {
      const bool is_slow = posting.path == 1 && !free_ns.contains(1);
      uint64_t& free = free_ns[posting.path];
      free = std::max(free, now_ns) + (is_slow ? kSlowNs : kStepNs);
      under_way.emplace(free, posting);
    }
    while (const auto probe = rails.scheduler.next_probe(now_ns)) {
      ++probes;
      rails.scheduler.ended(probe->id, Ending::kDone, now_ns + kMs / 10);
    }
  }
  EXPECT_GT(probes, 0u);
  EXPECT_GT(delivered[1], delivered[0] / 2) << delivered[0] << " by the other one";
}

}  // namespace
}  // namespace braid::transfer
