// What becomes of slices that are late or fail, of paths that stand still, and of probes.
#include <gtest/gtest.h>

#include <functional>
#include <optional>

#include "scheduler_rails.h"
#include "support/cpu_time.h"

namespace braid::transfer {
namespace {

constexpr uint64_t kSecond = 1000 * kMs;

/// Paths that pass probes and no slice, with one request. Its postings end as a test says.
struct Swallowing {
  explicit Swallowing(size_t rails_count) : rails(rails_count) { rails.add(1, 64 << 10); }

  /// Until the request has ended. `posted`: what to do about a posting, after those before.
  void run(const std::function<void(const std::vector<Posting>& all)>& posted) {
    for (now_ns = 0; now_ns < 60 * kSecond && !end; now_ns += kMs) {
      for (const Posting& posting : rails.post(now_ns)) {
        postings.push_back(posting);
        posted(postings);
      }
      while (const auto probe = rails.scheduler.next_probe(now_ns))
        rails.scheduler.ended(probe->id, Ending::kDone, now_ns);
      while (const auto event = rails.scheduler.next_event()) {
        if (const auto* fence = std::get_if<FenceWanted>(&*event))
          rails.scheduler.fenced(fence->path, now_ns);
        if (const auto* ended = std::get_if<RequestEnded>(&*event)) end = *ended;
      }
    }
  }
  void finish(const Posting& posting, Ending how) {
    rails.scheduler.ended(posting.id, how, now_ns);
  }

  Rails rails;
  uint64_t now_ns = 0;
  std::vector<Posting> postings;
  std::optional<RequestEnded> end;
};

TEST(Scheduler, ASliceMayBeOverdueMoreOftenThanItMayFail) {
  const RetryRules rules;
  Swallowing paths(2);
  paths.run([&](const std::vector<Posting>& all) {
    if (all.size() == rules.failures_max + 2) paths.finish(all.back(), Ending::kDone);
  });
  ASSERT_TRUE(paths.end);
  EXPECT_EQ(paths.end->outcome, Outcome::kDone);
  EXPECT_EQ(paths.end->delivered_bytes, 64u << 10);
  EXPECT_EQ(paths.end->reissued, rules.failures_max + 1);
}

TEST(Scheduler, ASliceThatIsOverdueAgainAndAgainFailsItsRequestInTheEnd) {
  const RetryRules rules;
  for (const size_t rails : {1, 2}) {
    Swallowing paths(rails);
    paths.run([](const std::vector<Posting>&) {});
    ASSERT_TRUE(paths.end) << rails;
    EXPECT_EQ(paths.end->outcome, Outcome::kFailed) << rails;
    EXPECT_GE(paths.now_ns, rules.overdue_max_ns) << rails;
    EXPECT_EQ(paths.rails.scheduler.open_postings(), 0u) << rails;
  }
}

// Its first posting delivers it after all, while the second one goes on for very long.
TEST(Scheduler, ASliceThatWasDeliveredFailsNoRequestHoweverLateItsOtherPostingIs) {
  const RetryRules rules;
  Rails rails(2);
  rails.add(1, 64 << 10);
  rails.add(2, 64 << 10);
  std::vector<Posting> all = rails.post(0);
  ASSERT_EQ(all.size(), 2u);
  const uint64_t late_ns = rules.last_overdue_ns + kMs;
  for (uint64_t now_ns = 0; now_ns <= late_ns && all.size() < 3; now_ns += kMs)
    for (const Posting& posting : rails.post(now_ns)) all.push_back(posting);
  ASSERT_GE(all.size(), 3u) << "one of them is overdue, and goes again";
  const uint64_t twice = all[2].request;
  for (const Posting& posting : all)
    if (posting.id != all[2].id) rails.scheduler.ended(posting.id, Ending::kDone, late_ns);
  for (uint64_t now_ns = late_ns; now_ns < late_ns + 3 * rules.overdue_max_ns; now_ns += 10 * kMs)
    rails.post(now_ns);
  for (const FenceWanted& fence : rails.events<FenceWanted>())
    rails.scheduler.fenced(fence.path, late_ns + 4 * rules.overdue_max_ns);
  rails.scheduler.ended(all[2].id, Ending::kDone, late_ns + 4 * rules.overdue_max_ns);
  size_t ends = 0;
  for (const RequestEnded& ended : rails.events<RequestEnded>()) {
    EXPECT_EQ(ended.outcome, Outcome::kDone) << ended.request << " " << twice;
    ++ends;
  }
  EXPECT_GE(ends, 1u);
  EXPECT_EQ(rails.scheduler.request_count(), 0u);
}

/// How long a fence takes that ends so many late postings of cancelled requests.
double seconds_of_fence(uint64_t count) {
  Rails rails(1);
  for (uint64_t id = 1; id <= count; ++id) rails.add(id, 1);
  EXPECT_EQ(rails.post(0).size(), count);
  rails.scheduler.path_failed(0, 0);
  for (uint64_t id = 1; id <= count; ++id) rails.scheduler.cancel(id, 0);
  EXPECT_EQ(rails.events<RequestEnded>().size(), 0u) << "they may still land";
  const double begun_s = braid::test::cpu_seconds(CLOCK_THREAD_CPUTIME_ID);
  rails.scheduler.fenced(0, 0);
  const double took_s = braid::test::cpu_seconds(CLOCK_THREAD_CPUTIME_ID) - begun_s;
  size_t cancelled = 0;
  for (const RequestEnded& ended : rails.events<RequestEnded>())
    cancelled += ended.outcome == Outcome::kCancelled ? 1 : 0;
  EXPECT_EQ(cancelled, count);
  EXPECT_EQ(rails.scheduler.open_postings(), 0u);
  EXPECT_EQ(rails.scheduler.request_count(), 0u);
  return took_s;
}

// An engine that stood still for seconds meanwhile would be given up by its peers.
TEST(Scheduler, AFenceTakesTimeInProportionToWhatIsLate) {
  const double few_s = seconds_of_fence(10'000), many_s = seconds_of_fence(200'000);
  EXPECT_LE(many_s, 120 * few_s);  // 20 times as many; 400 times the time, if each looked at all
}

// They end in an order of their own, and the fence ends those that are left.
TEST(Scheduler, LatePostingsEndInAnyOrder) {
  constexpr uint64_t kCount = 100;
  Rails rails(1);
  for (uint64_t id = 1; id <= kCount; ++id) rails.add(id, 1);
  const std::vector<Posting> all = rails.post(0);
  ASSERT_EQ(all.size(), kCount);
  rails.scheduler.path_failed(0, 0);
  for (uint64_t id = 1; id <= kCount; ++id) rails.scheduler.cancel(id, 0);
  for (size_t i = 0; i < kCount; i += 3)
    rails.scheduler.ended(all[(i * 7) % kCount].id, Ending::kDone, 0);
  const size_t by_themselves = rails.events<RequestEnded>().size();
  EXPECT_EQ(by_themselves, (kCount + 2) / 3);
  rails.scheduler.fenced(0, 0);
  EXPECT_EQ(rails.events<RequestEnded>().size() + by_themselves, kCount);
  EXPECT_EQ(rails.scheduler.open_postings(), 0u);
  EXPECT_EQ(rails.scheduler.request_count(), 0u);
}

TEST(Scheduler, WhatFailsAfterItWasLateIsAFailureToo) {
  const RetryRules rules;
  Swallowing paths(2);
  paths.run([&](const std::vector<Posting>& all) {
    if (all.size() > 1) paths.finish(all[all.size() - 2], Ending::kFailed);
  });
  ASSERT_TRUE(paths.end);
  EXPECT_EQ(paths.end->outcome, Outcome::kFailed);
  EXPECT_EQ(paths.postings.size(), rules.failures_max + 1);
}

TEST(Scheduler, APathThatStandsStillIsLeftForAnotherTransportAfterAWhile) {
  const RetryRules rules;
  Scheduler scheduler;
  const uint32_t near = scheduler.add_path({kPeer, scheduler.add_rail({10}), kNoRail, 10, 5});
  const uint32_t far = scheduler.add_path({kPeer, scheduler.add_rail({1}), kNoRail, 1, 50});
  RequestSpec request;
  request.id = 1;
  request.peer = kPeer;
  request.size_bytes = 64 << 10;
  request.ways = scheduler.add_ways({{near}, {far, 0, 1}});
  scheduler.add(std::move(request), 0);
  ASSERT_EQ(scheduler.next(0)->path, near);
  uint64_t now_ns = 0;
  std::optional<Posting> other;
  for (; !other && now_ns < kSecond; now_ns += kMs) other = scheduler.next(now_ns);
  ASSERT_TRUE(other);
  EXPECT_EQ(other->path, far);
  EXPECT_GE(now_ns, rules.standby_overdue_ns);
  EXPECT_LE(now_ns, rules.standby_overdue_ns + rules.overdue_ns_min + 2 * kMs);
}

// ---- Probes ----

TEST(Scheduler, APathThatMayWorkAgainIsProbedAtOnceAndAnEarlierProbeSaysNothing) {
  Rails rails(1);
  rails.scheduler.path_failed(0, 0);
  ASSERT_FALSE(rails.scheduler.next_probe(0)) << "it has just failed";
  const auto early = rails.scheduler.next_probe(kSecond);
  ASSERT_TRUE(early);
  rails.scheduler.path_may_work(0, kSecond);
  rails.scheduler.ended(early->id, Ending::kDone, kSecond);
  EXPECT_EQ(rails.scheduler.view(0, kSecond).state, PathState::kDown);
  const auto late = rails.scheduler.next_probe(kSecond);
  ASSERT_TRUE(late);
  rails.scheduler.ended(late->id, Ending::kDone, kSecond);
  EXPECT_EQ(rails.scheduler.view(0, kSecond).state, PathState::kRejoining);
}

/// Of the only path, which has failed: no answer came in time, and a pause follows.
std::optional<Probe> lose_probe(Rails& rails) {
  rails.scheduler.path_failed(0, 0);
  const auto lost = rails.scheduler.next_probe(kSecond);
  EXPECT_FALSE(rails.scheduler.next_probe(kSecond + 10 * kMs));
  return lost;
}

TEST(Scheduler, AProbeThatIsAnsweredLateBringsThePathBack) {
  Rails rails(1);
  const auto lost = lose_probe(rails);
  ASSERT_TRUE(lost);
  ASSERT_EQ(rails.scheduler.view(0, kSecond).state, PathState::kDown);
  rails.scheduler.ended(lost->id, Ending::kDone, kSecond + 11 * kMs);
  EXPECT_EQ(rails.scheduler.view(0, kSecond).state, PathState::kRejoining);
}

TEST(Scheduler, ALateAnswerFromBeforeTheFenceSaysNothing) {
  Rails rails(1);
  const auto lost = lose_probe(rails);
  ASSERT_TRUE(lost);
  rails.scheduler.fenced(0, kSecond + 10 * kMs);
  rails.scheduler.ended(lost->id, Ending::kDone, kSecond + 11 * kMs);
  EXPECT_EQ(rails.scheduler.view(0, kSecond).state, PathState::kDown);
}

TEST(Scheduler, ALateAnswerFromBeforeTheProbeThatBroughtThePathBackSaysNothing) {
  Rails rails(1);
  const auto lost = lose_probe(rails);
  ASSERT_TRUE(lost);
  const auto next = rails.scheduler.next_probe(2 * kSecond);
  ASSERT_TRUE(next);
  rails.scheduler.ended(next->id, Ending::kDone, 2 * kSecond + kMs);
  ASSERT_EQ(rails.scheduler.view(0, 2 * kSecond).state, PathState::kRejoining);
  EXPECT_EQ(rails.scheduler.open_postings(), 0u) << "nothing is awaited any more";
  rails.scheduler.path_failed(0, 3 * kSecond);
  rails.scheduler.ended(lost->id, Ending::kDone, 3 * kSecond + kMs);
  EXPECT_EQ(rails.scheduler.view(0, 3 * kSecond).state, PathState::kDown);
}

/// Two paths. What was measured of the second one is that it is slow; the first carries requests
/// one by one.
struct Overlooked {
  explicit Overlooked(bool is_measured_by_probes) {
    std::vector<Way> ways;
    for (const bool is_slow : {false, true}) {
      PathSpec spec{kPeer, scheduler.add_rail({10}), kNoRail, 10, 5};
      spec.is_measured_by_probes = !is_slow || is_measured_by_probes;
      ways.push_back({scheduler.add_path(spec)});
      if (!is_slow) fast = ways.front().path;
    }
    slow = ways.back().path;
    only_slow = scheduler.add_ways({ways.back()});
    both = scheduler.add_ways(ways);
    add(only_slow, 0);
    scheduler.ended(scheduler.next(0)->id, Ending::kDone, 3 * kMs);
  }
  void add(uint32_t ways, uint64_t when_ns) {
    RequestSpec request;
    request.id = ++requests;
    request.peer = kPeer;
    request.size_bytes = 4096;
    request.ways = ways;
    scheduler.add(std::move(request), when_ns);
  }
  /// Probes of the slow one until then, which get no answer.
  size_t count_probes(uint64_t until_ns) {
    size_t probes = 0;
    for (; now_ns < until_ns; now_ns += kMs) {
      add(both, now_ns);
      while (const auto posting = scheduler.next(now_ns)) {
        EXPECT_EQ(posting->path, fast);
        scheduler.ended(posting->id, Ending::kDone, now_ns + kMs / 100);
      }
      add(both, now_ns);  // something waits
      while (const auto probe = scheduler.next_probe(now_ns)) probes += probe->path == slow ? 1 : 0;
    }
    return probes;
  }

  Scheduler scheduler;
  uint32_t fast = 0, slow = 0, only_slow = 0, both = 0;
  uint64_t requests = 0, now_ns = 4 * kMs;
};

TEST(Scheduler, APathThatLosesTheProbeThatWasToMeasureItIsSuspect) {
  Overlooked paths(true);
  EXPECT_EQ(paths.count_probes(500 * kMs), 1u);
  EXPECT_EQ(paths.scheduler.view(paths.slow, 500 * kMs).state, PathState::kUp);
  paths.count_probes(1200 * kMs);
  EXPECT_NE(paths.scheduler.view(paths.slow, 1200 * kMs).state, PathState::kUp);
}

// A measuring probe is out while its path, of which nobody knew that it was down, is fenced.
TEST(Scheduler, APathThatIsFencedWhileItIsMeasuredIsProbedLikeAnyOther) {
  Overlooked paths(true);
  ASSERT_EQ(paths.count_probes(500 * kMs), 1u);
  paths.scheduler.fenced(paths.slow, paths.now_ns);
  paths.scheduler.path_may_work(paths.slow, paths.now_ns);
  const auto probe = paths.scheduler.next_probe(paths.now_ns);
  ASSERT_TRUE(probe);
  EXPECT_EQ(probe->path, paths.slow);
  paths.scheduler.ended(probe->id, Ending::kDone, paths.now_ns + kMs);
  EXPECT_EQ(paths.scheduler.view(paths.slow, paths.now_ns + kMs).state, PathState::kRejoining);
}

TEST(Scheduler, APathOfWhichAProbeSaysNothingIsNotMeasuredByOne) {
  Overlooked paths(false);
  EXPECT_EQ(paths.count_probes(500 * kMs), 0u);
}

}  // namespace
}  // namespace braid::transfer
