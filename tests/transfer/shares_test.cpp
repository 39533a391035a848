// How fast each engine of a host may use a NIC that they share.
#include "transfer/shares.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

namespace braid::transfer {
namespace {

constexpr uint64_t kMs = 1'000'000;

// ---- The pace, in virtual time ----

/// Processes on one rail. Those that want more than it carries get it by their weights, as flows of
/// TCP do that are unlike: nobody is fair by himself.
struct Contended {
  struct Process {
    double weight = 1;
    double limit_gbps = 1e9;    ///< by something else
    bool always_waits = false;  ///< its slices do, whatever limits it
    bool is_active = true;
    SharePace pace;
    RailShare share;
    double bytes = 0;
    double gbps = 0;  ///< now
  };

  explicit Contended(size_t count) : processes(count) {}

  void run(uint64_t ms) {
    for (uint64_t i = 0; i < ms; ++i) step();
  }
  double allowed(const Process& process) const {
    if (!process.is_active) return 0;
    const double pace = process.share.gbps > 0 ? process.share.gbps : 1e9;
    return std::min(pace, process.limit_gbps);
  }
  /// By weights, none beyond what it may.
  void divide() {
    double left = capacity_gbps;
    std::vector<size_t> open;
    for (size_t i = 0; i < processes.size(); ++i) {
      processes[i].gbps = 0;
      if (processes[i].is_active) open.push_back(i);
    }
    while (!open.empty()) {
      double weights = 0;
      for (const size_t i : open) weights += processes[i].weight;
      const auto is_satisfied = [&](size_t i) {
        return allowed(processes[i]) <= left * processes[i].weight / weights;
      };
      const auto first = std::find_if(open.begin(), open.end(), is_satisfied);
      if (first == open.end()) {
        for (const size_t i : open) processes[i].gbps = left * processes[i].weight / weights;
        return;
      }
      processes[*first].gbps = allowed(processes[*first]);
      left -= processes[*first].gbps;
      open.erase(first);
    }
  }
  void step() {
    divide();
    now_ns += kMs;
    ShareHeard heard;
    heard.members = processes.size();
    std::vector<ShareRow> rows;
    for (Process& process : processes) {
      process.bytes += process.gbps * kMs;
      const bool is_full = process.always_waits || process.gbps < process.limit_gbps * 0.999;
      const ShareTold told = process.pace.tell(
          {static_cast<uint64_t>(process.bytes), process.is_active, is_full}, now_ns);
      heard.delivered_bytes += static_cast<uint64_t>(process.bytes);
      heard.is_full = heard.is_full || told.is_full;
      if (told.is_active) rows.push_back({1, now_ns, told.rate_gbps, told.is_full});
    }
    heard.rows = rows;
    for (Process& process : processes) {
      if (!process.is_active) continue;
      process.share = process.pace.decide(heard, now_ns);
      ++heard.mine;
    }
  }
  double sum() const {
    return std::accumulate(processes.begin(), processes.end(), 0.0,
                           [](double all, const Process& one) { return all + one.gbps; });
  }

  double capacity_gbps = 0.05;
  uint64_t now_ns = 1'000 * kMs;
  std::vector<Process> processes;
};

TEST(SharePace, WhoTakesMoreLeavesItToTheOthers) {
  for (const double capacity : {0.05, 1.0, 25.0}) {
    Contended rail(4);
    rail.capacity_gbps = capacity;
    rail.processes[0].weight = 8;
    rail.run(2);
    EXPECT_GT(rail.processes[0].gbps, 0.6 * capacity) << "what the rail does by itself";
    rail.run(1500);
    for (const auto& process : rail.processes) {
      EXPECT_GT(process.gbps, 0.22 * capacity) << capacity;
      EXPECT_LT(process.gbps, 0.29 * capacity) << capacity;
    }
    EXPECT_GT(rail.sum(), 0.99 * capacity);
  }
}

TEST(SharePace, WhatSomebodyCannotUseGoesToTheOthers) {
  for (const bool always_waits : {false, true}) {
    Contended rail(2);
    rail.processes[1].limit_gbps = 0.005;  // its peer takes no more
    rail.processes[1].always_waits = always_waits;
    rail.run(1500);
    double sum = 0;
    for (int i = 0; i < 1000; ++i) {
      rail.run(1);
      sum += rail.sum() / 1000;
    }
    EXPECT_GT(sum, 0.9 * rail.capacity_gbps) << always_waits;
    rail.processes[1].limit_gbps = 1e9;
    rail.processes[0].weight = 4;
    rail.run(2500);
    EXPECT_GT(rail.processes[1].gbps, 0.44 * rail.capacity_gbps) << "it is given its part";
    EXPECT_GT(rail.sum(), 0.99 * rail.capacity_gbps);
  }
}

TEST(SharePace, WhoIsLeftAloneHasNoPace) {
  Contended rail(3);
  rail.run(500);
  EXPECT_GT(rail.processes[0].share.gbps, 0);
  rail.processes[1].is_active = rail.processes[2].is_active = false;
  rail.run(1);
  EXPECT_EQ(rail.processes[0].share.gbps, 0);
  EXPECT_EQ(rail.processes[0].share.share, 1);
}

TEST(SharePace, FollowsARailThatBecomesSlowerOrFaster) {
  Contended rail(2);
  rail.processes[0].weight = 4;
  rail.run(1000);
  for (const double capacity : {0.01, 0.2}) {
    rail.capacity_gbps = capacity;
    rail.run(5000);
    EXPECT_GT(rail.sum(), 0.95 * capacity);
    EXPECT_LT(rail.processes[0].gbps, 0.6 * capacity);
  }
}

// ---- The scheduler keeps to it ----

/// One rail to one peer. Postings end when they have been sent, one after the other.
struct OneRail {
  OneRail() {
    local = scheduler.add_rail({10});
    const uint32_t remote = scheduler.add_rail({10});
    const uint32_t path = scheduler.add_path({7, local, remote, 10, 5});
    scheduler.add_ways({{path, 0}});
  }
  void add(uint64_t id, uint64_t size_bytes, Urgency urgency = Urgency::kBulk) {
    RequestSpec request;
    request.id = id;
    request.peer = 7;
    request.size_bytes = size_bytes;
    request.urgency = urgency;
    scheduler.add(std::move(request), now_ns);
  }
  /// Bytes that were posted until then, each ended at once.
  uint64_t run_until(uint64_t end_ns) {
    uint64_t bytes = 0;
    while (now_ns < end_ns) {
      while (const auto posting = scheduler.next(now_ns)) {
        bytes += posting->size_bytes;
        scheduler.ended(posting->id, Ending::kDone, now_ns + 1000);
      }
      while (scheduler.next_event()) {
      }
      now_ns = std::max(now_ns + 2000, std::min(end_ns, scheduler.next_deadline_ns()));
    }
    return bytes;
  }

  Scheduler scheduler;
  uint32_t local = 0;
  uint64_t now_ns = 1000 * kMs;
};

TEST(SchedulerPace, PostsNoFasterAndAllAtOnceWhenItIsGone) {
  OneRail rail;
  rail.scheduler.set_share(rail.local, {0.5, 1.0});
  rail.add(1, 1 << 30);
  (void)rail.run_until(1010 * kMs);
  const uint64_t bytes = rail.run_until(1110 * kMs);
  EXPECT_GT(bytes, 95 * kMs);
  EXPECT_LT(bytes, 105 * kMs);
  const RailUse use = rail.scheduler.take_use(rail.local, rail.now_ns);
  EXPECT_TRUE(use.is_full);
  EXPECT_GT(use.delivered_bytes, 100 * kMs);
  rail.scheduler.set_share(rail.local, {1, 0});
  EXPECT_GT(rail.run_until(1120 * kMs), 50 * kMs);
}

TEST(SchedulerPace, UrgentSlicesDoNotWaitForIt) {
  OneRail rail;
  rail.scheduler.set_share(rail.local, {0.5, 0.01});
  rail.add(1, 64 << 20);
  (void)rail.run_until(1001 * kMs);
  rail.add(2, 4096, Urgency::kUrgent);
  const auto posting = rail.scheduler.next(rail.now_ns);
  ASSERT_TRUE(posting.has_value());
  EXPECT_EQ(posting->request, 2u);
}

}  // namespace
}  // namespace braid::transfer
