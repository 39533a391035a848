// Who gets the mutex of a service while one thread drives its engine.
#include "fabric/library/looks.h"

#include <gtest/gtest.h>

#include <thread>

#include "support/eventually.h"

namespace braid::fabric {
namespace {

constexpr uint64_t kUs = 1'000;

TEST(Doorkeeper, LetsInWhoWasKeptOut) {
  Doorkeeper keeper;
  EXPECT_FALSE(keeper.lets_in(0, 0, 1)) << "nobody waits";
  EXPECT_FALSE(keeper.lets_in(1, 0, 10 * kUs)) << "it may still get in by itself";
  EXPECT_FALSE(keeper.lets_in(1, 0, 20 * kUs));
  EXPECT_TRUE(keeper.lets_in(1, 0, 10 * kUs + Doorkeeper::kKeptOutNs));
  EXPECT_TRUE(keeper.lets_in(2, 0, 900 * kUs)) << "none of them has got in";
}

TEST(Doorkeeper, CountsAnewOnceSomebodyGotIn) {
  Doorkeeper keeper;
  EXPECT_FALSE(keeper.lets_in(2, 0, 10 * kUs));
  EXPECT_FALSE(keeper.lets_in(1, 1, 20 * kUs + Doorkeeper::kKeptOutNs));
  EXPECT_TRUE(keeper.lets_in(1, 1, 20 * kUs + 2 * Doorkeeper::kKeptOutNs));
  EXPECT_FALSE(keeper.lets_in(0, 2, 900 * kUs));
  EXPECT_FALSE(keeper.lets_in(1, 2, 1000 * kUs)) << "another one";
}

TEST(Doorkeeper, LeavesTheMutexAloneLessOftenIfNobodyComes) {
  Doorkeeper keeper;
  constexpr uint64_t kKept = Doorkeeper::kKeptOutNs;
  EXPECT_FALSE(keeper.lets_in(1, 0, 1));
  EXPECT_TRUE(keeper.lets_in(1, 0, 1 + kKept));
  keeper.nobody_came(20 * kKept);
  EXPECT_FALSE(keeper.lets_in(1, 0, 22 * kKept - 1)) << "each look would wait";
  EXPECT_TRUE(keeper.lets_in(1, 0, 22 * kKept));
  for (int i = 0; i < 100; ++i) keeper.nobody_came(100 * kKept);
  EXPECT_TRUE(keeper.lets_in(1, 0, 100 * kKept + Doorkeeper::kPatienceMaxNs));
  EXPECT_FALSE(keeper.lets_in(1, 1, 1'000'000 * kKept)) << "somebody has come";
  EXPECT_TRUE(keeper.lets_in(1, 1, 1'000'001 * kKept));
}

TEST(Patience, GrowsWhileDriversSleepShortlyBeforeEvents) {
  constexpr uint64_t kMin = Patience::kMinNs, kMax = Patience::kMaxNs;
  Patience patience;
  EXPECT_EQ(patience.ns(), kMin);
  patience.happened(1 * kUs);
  EXPECT_EQ(patience.ns(), kMin) << "nobody has slept";
  patience.gave_up(10 * kUs);
  patience.happened(60 * kUs);
  EXPECT_EQ(patience.ns(), 2 * kMin);
  patience.happened(70 * kUs);
  EXPECT_EQ(patience.ns(), 2 * kMin) << "the sleep was counted already";
  for (uint64_t event_ns = 100 * kUs; patience.ns() < kMax - kUs; event_ns += kMax - kUs) {
    const uint64_t before_ns = patience.ns();
    patience.gave_up(event_ns + before_ns);
    patience.happened(event_ns + kMax - kUs);
    ASSERT_GT(patience.ns(), before_ns) << "events come every " << kMax - kUs << " ns";
  }
  EXPECT_EQ(patience.ns(), kMax);
}

TEST(Patience, EndsWithASilence) {
  Patience patience;
  patience.gave_up(10 * kUs);
  patience.happened(20 * kUs);
  ASSERT_GT(patience.ns(), Patience::kMinNs);
  patience.gave_up(30 * kUs);
  patience.happened(30 * kUs + Patience::kMaxNs);
  EXPECT_EQ(patience.ns(), Patience::kMinNs) << "more patience would not have helped";
}

/// Programs that only look, with a limit of no time, must not wake the thread at each look.
TEST(Drivers, AWaitWithoutTimeLooksOnceAndLeavesTheThreadAsleep) {
  std::mutex mutex;
  std::unique_lock lock(mutex);
  Drivers drivers;
  int looks = 0;
  const auto step = [&](uint64_t) { return ++looks == 1; };
  const auto wait = [&](int wanted) {
    return wait_until(
        lock, drivers, 0, [&] { return looks >= wanted; }, step, [] {});
  };
  EXPECT_FALSE(wait(2));
  EXPECT_EQ(looks, 1);
  EXPECT_GT(drivers.left_ns, 0U) << "the thread takes over at once";
  EXPECT_TRUE(wait(2)) << "its one look has met it";
  EXPECT_EQ(looks, 2);
}

/// A caller that waits in vain lets the thread drive.
TEST(Drivers, ADriverThatRunsOutOfPatienceLeavesTheEngineToTheThread) {
  std::mutex mutex;
  std::unique_lock lock(mutex);
  Drivers drivers;
  const uint64_t end_ns = monotonic_ns() + 50'000 * kUs;
  EXPECT_FALSE(wait_until(
      lock, drivers, end_ns, [] { return false; }, [](uint64_t) { return false; }, [] {}));
  EXPECT_EQ(drivers.left_ns, 0U) << "the thread waits for it to come back";
  EXPECT_GE(monotonic_ns(), end_ns);
}

/// A caller that the system does not run must not slow down each look.
TEST(Drivers, ACallerThatDoesNotComeIsWaitedForOnce) {
  std::mutex mutex;
  std::unique_lock lock(mutex);
  Drivers drivers;
  drivers.entering = 1;
  drivers.let_callers_in(lock, 1, false);
  const uint64_t begin_ns = monotonic_ns();
  drivers.let_callers_in(lock, begin_ns, false);
  EXPECT_GE(monotonic_ns(), begin_ns + 1000 * kUs);
  EXPECT_FALSE(drivers.doorkeeper.lets_in(1, 0, begin_ns + 1000 * kUs)) << "the count is new";
}

/// Callers enter, and others wait for what they do, while one of them drives an engine that always
/// has something to do.
TEST(Drivers, CallersGetInAndNoneIsCountedTwice) {
  constexpr int kCallers = 4, kTurns = 200;
  std::mutex mutex;
  Drivers drivers;
  int done = 0;  // under the mutex
  std::vector<std::thread> callers;
  for (int caller = 0; caller < kCallers; ++caller)
    callers.emplace_back([&] {
      for (int turn = 0; turn < kTurns; ++turn) {
        std::unique_lock lock = drivers.enter(mutex);
        ++done;
        drivers.tell();
      }
    });
  for (int waiter = 0; waiter < 2; ++waiter)
    callers.emplace_back([&] {
      std::unique_lock lock = drivers.enter(mutex);
      EXPECT_TRUE(wait_until(
          lock, drivers, monotonic_ns() + 60'000'000'000, [&] { return done == kCallers * kTurns; },
          [](uint64_t) { return true; }, [] {}));
    });
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(drivers.entering, 0);
}

/// A rail that must be polled before its thread may sleep gives the mutex to nobody.
TEST(Drivers, CallersGetInWhileTheThreadMayNotSleep) {
  std::mutex mutex;
  Drivers drivers;
  std::thread thread([&] {
    look_until_end(
        mutex, drivers, [](uint64_t) { return false; }, [](std::unique_lock<std::mutex>&) {});
  });
  std::atomic<bool> is_in = false;
  std::thread caller([&] {
    while (drivers.entered == 0) const std::unique_lock lock = drivers.enter(mutex);
    is_in = true;
  });
  EXPECT_TRUE(test::eventually([&] { return is_in.load(); }, std::chrono::seconds(20)));
  drivers.is_ending = true;
  thread.join();
  caller.join();
}

}  // namespace
}  // namespace braid::fabric
