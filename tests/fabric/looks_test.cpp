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
          [] { return true; }, [] {}));
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
        mutex, drivers, [] { return false; }, [](std::unique_lock<std::mutex>&) {});
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
