// When a way counts as one that does not reach some memory.
#include "transfer/policy/reach.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "scheduler_rails.h"

namespace braid::transfer {
namespace {

TEST(Reach, AWayIsLeftOutOnceSlicesHaveFailedOnSeveralConnections) {
  Reach reach;
  for (uint64_t connection = 1; connection < Reach::kConnectionsMax; ++connection)
    for (int slice = 0; slice < 10; ++slice)
      EXPECT_EQ(reach.failed(connection), std::nullopt) << "they break together";
  EXPECT_EQ(reach.failed(Reach::kConnectionsMax), Reach::kPauseNs);
}

TEST(Reach, AfterThePauseOneFailureIsEnoughForALongerOne) {
  Reach reach;
  uint64_t connection = 0, pause_ns = 0;
  while (pause_ns == 0) pause_ns = reach.failed(++connection).value_or(0);
  for (int i = 0; i < 20; ++i) {
    const uint64_t next_ns = reach.failed(++connection).value_or(0);
    EXPECT_EQ(next_ns, std::min(2 * pause_ns, Reach::kPauseMaxNs));
    pause_ns = next_ns;
  }
}

TEST(Scheduler, AClosedWayCarriesItsSetOnlyWhereThereIsNoOther) {
  Scheduler scheduler;
  std::vector<Way> both;
  for (int i = 0; i < 2; ++i) {
    const uint32_t rail = scheduler.add_rail({10});
    both.push_back({scheduler.add_path({kPeer, rail, kNoRail, 10, 5})});
  }
  const uint32_t here = scheduler.add_ways(both), elsewhere = scheduler.add_ways(both);
  uint64_t requests = 0, now_ns = 0;
  const auto paths_of = [&](uint32_t ways) {
    scheduler.add(request_of(++requests, 256 << 10, ways), now_ns);
    std::set<uint32_t> paths;
    while (scheduler.request_count() > 0 && now_ns < 100 * kMs) {
      std::vector<Posting> postings;
      while (const auto posting = scheduler.next(now_ns)) postings.push_back(*posting);
      now_ns += kMs / 50;
      for (const Posting& posting : postings) {
        paths.insert(posting.path);
        scheduler.ended(posting.id, Ending::kDone, now_ns);
      }
    }
    return paths;
  };
  const uint32_t first = both[0].path, second = both[1].path;
  scheduler.set_closed(here, first, true);
  EXPECT_EQ(paths_of(here), std::set<uint32_t>{second});
  EXPECT_TRUE(paths_of(elsewhere).contains(first));
  scheduler.retire_path(second);
  EXPECT_EQ(paths_of(here), std::set<uint32_t>{first}) << "there is no other one";
}

}  // namespace
}  // namespace braid::transfer
