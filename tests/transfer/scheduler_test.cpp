// The scheduler alone: what it posts where, and when a request is final.
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <map>
#include <set>

#include "scheduler_rails.h"

namespace braid::transfer {
namespace {

TEST(Scheduler, ARequestIsSpreadOverIdleRailsAndEndsWithItsLastSlice) {
  Rails rails(4);
  rails.add(1, 8 * 64 << 10);
  const std::vector<Posting> postings = rails.post(0);
  ASSERT_EQ(postings.size(), 8u);
  std::map<uint32_t, int> by_path;
  std::set<uint64_t> offsets;
  for (const Posting& posting : postings) {
    ++by_path[posting.path];
    offsets.insert(posting.offset);
    EXPECT_EQ(posting.size_bytes, 64u << 10);
  }
  EXPECT_EQ(by_path, (std::map<uint32_t, int>{{0, 2}, {1, 2}, {2, 2}, {3, 2}}));
  EXPECT_EQ(offsets.size(), 8u);
  for (size_t i = 0; i < 7; ++i)
    rails.scheduler.ended(postings[i].id, Ending::kDone, 20'000 + 1000 * i);
  EXPECT_TRUE(rails.events<RequestEnded>().empty());
  rails.scheduler.ended(postings[7].id, Ending::kDone, 30'000);
  const auto ended = rails.events<RequestEnded>();
  ASSERT_EQ(ended.size(), 1u);
  EXPECT_EQ(ended[0].outcome, Outcome::kDone);
  EXPECT_EQ(ended[0].delivered_bytes, 8u * 64 << 10);
  EXPECT_EQ(rails.scheduler.request_count(), 0u);
  EXPECT_EQ(rails.scheduler.open_postings(), 0u);
}

TEST(Scheduler, ARequestOfNoBytesIsDoneAtOnce) {
  Rails rails(1);
  rails.add(1, 0);
  EXPECT_EQ(rails.events<RequestEnded>().size(), 1u);
  EXPECT_TRUE(rails.post(0).empty());
}

TEST(Scheduler, AStalledSliceIsReissuedAndItsRequestIsFinalOnlyAfterTheFence) {
  Rails rails(2);
  rails.add(1, 128 << 10);
  const std::vector<Posting> first = rails.post(0);
  ASSERT_EQ(first.size(), 2u);
  rails.scheduler.ended(first[0].id, Ending::kDone, 20'000);
  const uint64_t due_ns = rails.scheduler.next_deadline_ns();
  EXPECT_LE(due_ns, RetryRules{}.overdue_ns_min + kMs);
  const std::vector<Posting> again = rails.post(due_ns);
  ASSERT_EQ(again.size(), 1u);
  EXPECT_EQ(again[0].offset, first[1].offset);
  EXPECT_NE(again[0].path, first[1].path);
  rails.scheduler.ended(again[0].id, Ending::kDone, due_ns + 20'000);
  bool wants_fence = false;
  while (const auto event = rails.scheduler.next_event()) {
    EXPECT_FALSE(std::holds_alternative<RequestEnded>(*event)) << "the first may still land";
    if (const auto* fence = std::get_if<FenceWanted>(&*event))
      wants_fence = fence->path == first[1].path;
  }
  ASSERT_TRUE(wants_fence);
  rails.scheduler.fenced(first[1].path, due_ns + kMs);
  const auto ended = rails.events<RequestEnded>();
  ASSERT_EQ(ended.size(), 1u);
  EXPECT_EQ(ended[0].outcome, Outcome::kDone);
  EXPECT_EQ(ended[0].reissued, 1u);
  rails.scheduler.ended(first[1].id, Ending::kDone, due_ns + 2 * kMs);  // nobody minds
  EXPECT_EQ(rails.scheduler.open_postings(), 0u);
}

TEST(Scheduler, ThePathThatIsTheLastIsWaitedFor) {
  Rails rails(2);
  rails.scheduler.path_failed(1, 0);
  rails.add(1, 64 << 10);
  const std::vector<Posting> first = rails.post(0);
  ASSERT_EQ(first.size(), 1u);
  for (uint64_t now_ns = kMs; now_ns < 100 * kMs; now_ns += kMs)
    EXPECT_TRUE(rails.post(now_ns).empty());
  EXPECT_EQ(rails.scheduler.view(0, 100 * kMs).state, PathState::kUp);
  rails.add(2, 64 << 10, 100 * kMs);
  EXPECT_EQ(rails.post(100 * kMs).size(), 1u) << "and is used on";
  rails.scheduler.ended(first[0].id, Ending::kDone, 101 * kMs);
  const auto ended = rails.events<RequestEnded>();
  ASSERT_EQ(ended.size(), 1u);
  EXPECT_EQ(ended[0].reissued, 0u);
}

TEST(Scheduler, ARequestWithoutAnyWayFailsAfterItsLimit) {
  SchedulerOptions options;
  options.retry.unreachable_ns = 10 * kMs;
  Rails rails(0, options);
  rails.add(1, 4096);
  EXPECT_TRUE(rails.post(0).empty());
  EXPECT_TRUE(rails.events<RequestEnded>().empty());
  ASSERT_EQ(rails.scheduler.next_deadline_ns(), 10 * kMs);
  rails.post(10 * kMs);
  const auto ended = rails.events<RequestEnded>();
  ASSERT_EQ(ended.size(), 1u);
  EXPECT_EQ(ended[0].outcome, Outcome::kUnreachable);
}

/// One looks for all that wait for the same ways, and each has its own limit nevertheless.
TEST(Scheduler, RequestsOfManySourcesWithoutAnyWayFailAtTheirLimits) {
  constexpr uint64_t kSources = 1000;
  SchedulerOptions options;
  options.retry.unreachable_ns = 10 * kMs;
  Rails rails(2, options);
  for (const uint32_t path : {0u, 1u}) rails.scheduler.path_failed(path, 0);
  const auto add = [&](uint64_t id, uint64_t now_ns) {
    RequestSpec spec;
    spec.id = id;
    spec.peer = kPeer;
    spec.size_bytes = 4096;
    spec.source = static_cast<uint32_t>(id);
    rails.scheduler.add(std::move(spec), now_ns);
    EXPECT_TRUE(rails.post(now_ns).empty());
  };
  const auto ended = [&](uint64_t now_ns) {
    rails.post(now_ns);
    const auto events = rails.events<RequestEnded>();
    for (const RequestEnded& event : events) EXPECT_EQ(event.outcome, Outcome::kUnreachable);
    return events.size();
  };
  for (uint64_t id = 1; id <= kSources; ++id) add(id, id <= kSources / 2 ? 0 : 4 * kMs);
  EXPECT_EQ(ended(10 * kMs - 1), 0u);
  EXPECT_EQ(ended(10 * kMs), kSources / 2);
  EXPECT_EQ(ended(14 * kMs - 1), 0u);
  EXPECT_EQ(ended(14 * kMs), kSources / 2);
  add(kSources + 1, 20 * kMs);
  EXPECT_EQ(ended(30 * kMs - 1), 0u) << "the time before it is not its own";
  EXPECT_EQ(ended(30 * kMs), 1u);
}

TEST(Scheduler, HugeRequestsAreCutAsTheyArePosted) {
  Rails rails(4);
  for (uint64_t id = 1; id <= 10'000; ++id) rails.add(id, uint64_t{1} << 30);
  const size_t posted = rails.post(0).size();
  EXPECT_GE(posted, 4u);
  EXPECT_LE(posted, 16u) << "of 640,000 slices";
  EXPECT_EQ(rails.scheduler.open_postings(), posted);
}

TEST(Scheduler, UrgentGoesBeforeBulkThatWaits) {
  Rails rails(1);
  rails.add(1, 256 << 20);
  std::vector<Posting> bulk = rails.post(0);
  RequestSpec urgent;
  urgent.id = 2;
  urgent.peer = kPeer;
  urgent.size_bytes = 4096;
  urgent.urgency = Urgency::kUrgent;
  rails.scheduler.add(std::move(urgent), 1000);
  const std::vector<Posting> next = rails.post(1000);
  ASSERT_EQ(next.size(), 1u) << "bulk has filled the rail, and an urgent slice goes all the same";
  EXPECT_EQ(next[0].request, 2u);
  rails.scheduler.ended(bulk[0].id, Ending::kDone, 2000);
  for (const Posting& later : rails.post(2000)) EXPECT_LE(later.size_bytes, 64u << 10);
}

TEST(Scheduler, ExplainNamesEachWayAndTheOneThatIsTaken) {
  Rails rails(2);
  const auto ways = rails.scheduler.explain(0, 1 << 20, Urgency::kBulk, 0);
  ASSERT_EQ(ways.size(), 2u);
  EXPECT_TRUE(ways[0].is_chosen != ways[1].is_chosen);
  EXPECT_NEAR(ways[0].eta_us, 5 + 65536 / 10e3, 0.1);
}

/// Chooses as braid does, and counts how often it is asked.
class Counting final : public SprayPolicy {
 public:
  explicit Counting(size_t& asked) : asked_(asked) {}
  std::optional<size_t> choose(const SliceView& slice, std::span<const WayView> ways) override {
    ++asked_;
    return spray(slice, ways);
  }
  void delivered(uint32_t, uint64_t, uint64_t) override {}

 private:
  size_t& asked_;
};

TEST(Scheduler, ThousandsThatWaitForRoomCostNoMoreThanAFew) {
  size_t asked = 0;
  Scheduler scheduler({}, std::make_unique<Counting>(asked));
  const uint32_t rail = scheduler.add_rail({10});
  const uint32_t path = scheduler.add_path({kPeer, rail, kNoRail, 10, 5});
  scheduler.add_ways({{path, 0}});
  constexpr uint32_t kFlows = 5000;
  for (uint32_t flow = 0; flow < kFlows; ++flow) {
    RequestSpec request;
    request.id = flow + 1;
    request.peer = kPeer;
    request.size_bytes = 4 << 20;
    request.source = flow;
    scheduler.add(std::move(request), 0);
  }
  std::deque<uint64_t> open;
  uint64_t now_ns = 0, ended = 0;
  const auto post = [&] {
    while (const auto posting = scheduler.next(now_ns)) open.push_back(posting->id);
  };
  post();
  asked = 0;
  for (uint64_t end = 0; end < 1000; ++end, now_ns += 1000) {
    scheduler.ended(open.front(), Ending::kDone, now_ns);
    open.pop_front();
    post();
    post();  // nothing has changed since
  }
  EXPECT_LT(asked, 20'000u);
  for (; ended < kFlows; now_ns += 1000) {
    ASSERT_FALSE(open.empty()) << "somebody waits for ever";
    scheduler.ended(open.front(), Ending::kDone, now_ns);
    open.pop_front();
    post();
    while (const auto event = scheduler.next_event()) ended += event->index() == 0;
  }
}

TEST(Scheduler, ThousandsThatNoWayReachesFailTogether) {
  Rails rails(1);
  for (uint64_t id = 1; id <= 500; ++id) {
    RequestSpec request;
    request.id = id;
    request.peer = kPeer;
    request.size_bytes = 4096;
    request.source = static_cast<uint32_t>(id);
    rails.scheduler.add(std::move(request), 0);
  }
  rails.scheduler.path_failed(0, 0);
  (void)rails.post(1);
  (void)rails.post(6'000 * kMs);
  EXPECT_EQ(rails.events<RequestEnded>().size(), 500u);
}

TEST(Scheduler, WhatTheOwnerRejectsLeavesItsPathUp) {
  Rails rails(1);
  rails.add(1, 4096);
  rails.add(2, 4096);
  const std::vector<Posting> postings = rails.post(0);
  ASSERT_EQ(postings.size(), 2u);
  rails.scheduler.cancel(1, 10);
  rails.scheduler.ended(postings[0].id, Ending::kRejected, 10);
  EXPECT_EQ(rails.scheduler.view(0, 10).state, PathState::kUp);
  rails.scheduler.ended(postings[1].id, Ending::kDone, 20);
  const auto ended = rails.events<RequestEnded>();
  ASSERT_EQ(ended.size(), 2u);
  EXPECT_EQ(ended[0].outcome, Outcome::kCancelled);
  EXPECT_EQ(ended[1].outcome, Outcome::kDone);
}

TEST(Scheduler, ARequestThatHasEndedLeavesNoDeadlineBehind) {
  Rails rails(1);
  for (uint64_t id = 1; id <= 1000; ++id) {
    RequestSpec request;
    request.id = id;
    request.peer = kPeer;
    request.size_bytes = 4096;
    request.deadline_ns = 30'000 * kMs;
    rails.scheduler.add(std::move(request), 0);
    for (const Posting& posting : rails.post(0))
      rails.scheduler.ended(posting.id, Ending::kDone, 10'000);
  }
  EXPECT_EQ(rails.events<RequestEnded>().size(), 1000u);
  (void)rails.post(1000 * kMs);  // what looks at its path has looked
  EXPECT_EQ(rails.scheduler.next_deadline_ns(), kNever);
}

/// Peers of one rail here. Two that are in trouble are taken for trouble of that rail.
TEST(Scheduler, APeerThatWasRemovedLeavesNothing) {
  Scheduler scheduler;
  const uint32_t here = scheduler.add_rail({10});
  const auto add_peer = [&](uint64_t peer) {
    const uint32_t there = scheduler.add_rail({10});
    const uint32_t path = scheduler.add_path({peer, here, there, 10, 5});
    return std::tuple(there, path, scheduler.add_ways({{path, 0}}));
  };
  const auto move = [&](uint64_t peer, uint32_t ways, uint64_t now_ns) {
    RequestSpec request;
    request.id = request.peer = peer;
    request.size_bytes = 4096;
    request.ways = ways;
    scheduler.add(std::move(request), now_ns);
    const auto posting = scheduler.next(now_ns);
    ASSERT_TRUE(posting);
    scheduler.ended(posting->id, Ending::kDone, now_ns + 10'000);
  };
  const auto [rail_of_one, first, ways_of_one] = add_peer(1);
  const auto [rail_of_two, second, ways_of_two] = add_peer(2);
  for (uint64_t peer = 3; peer < 2000; ++peer) {
    const auto [rail, path, ways] = add_peer(peer);
    if (peer < 1000)
      move(peer, ways, peer * kMs);
    else
      scheduler.path_failed(path, peer * kMs);
    scheduler.remove_peer(peer);
    scheduler.remove_rail(rail);
    while (scheduler.next_probe(peer * kMs + 30'000)) {
    }
  }
  EXPECT_EQ(scheduler.path_count(), 2u);
  EXPECT_EQ(scheduler.rail_count(), 3u);
  scheduler.path_failed(first, 3000 * kMs);
  EXPECT_EQ(scheduler.view(second, 3000 * kMs).state, PathState::kUp) << "it is in no trouble";
  move(2, ways_of_two, 3001 * kMs);
  EXPECT_EQ(scheduler.view(second, 3001 * kMs).delivered_bytes, 4096u);
}

TEST(Scheduler, ARateThatWasTakenForTooLowLeavesABaseLatency) {
  Rails rails(1);
  uint64_t now_ns = 0;
  const auto move = [&](uint64_t id, uint64_t size_bytes, uint64_t took_ns) {
    rails.add(id, size_bytes, now_ns);
    for (const Posting& posting : rails.post(now_ns))
      rails.scheduler.ended(posting.id, Ending::kDone, now_ns + took_ns);
    now_ns += took_ns + kMs;
  };
  for (uint64_t id = 1; id < 10; ++id) move(id, 64 << 10, 20'000 * id);
  for (uint64_t id = 10; id < 20; ++id) move(id, 64 << 10, 15'000);
  move(20, 64, 8'000);
  EXPECT_GT(rails.scheduler.view(0, now_ns).base_latency_us, 1);
}

}  // namespace
}  // namespace braid::transfer
