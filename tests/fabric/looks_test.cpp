// Who drives the engine of a service, and how others get at it meanwhile.
#include "fabric/library/looks.h"

#include <gtest/gtest.h>

#include <thread>

#include "support/eventually.h"

namespace braid::fabric {
namespace {

constexpr uint64_t kUs = 1'000;

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
  DelegatingMutex mutex;
  Drivers drivers;
  int looks = 0;
  const auto step = [&](uint64_t) { return ++looks == 1; };
  const auto wait = [&](int wanted) {
    return wait_until(
        mutex, drivers, 0, [&] { return looks >= wanted; }, step, [] {});
  };
  EXPECT_FALSE(wait(2));
  EXPECT_EQ(looks, 1);
  EXPECT_GT(drivers.left_ns, 0U) << "the thread takes over at once";
  EXPECT_TRUE(wait(2)) << "its one look has met it";
  EXPECT_EQ(looks, 2);
}

/// A caller that waits in vain lets the thread drive.
TEST(Drivers, ADriverThatRunsOutOfPatienceLeavesTheEngineToTheThread) {
  DelegatingMutex mutex;
  Drivers drivers;
  const uint64_t end_ns = monotonic_ns() + 1'000'000 * kUs;
  EXPECT_FALSE(wait_until(
      mutex, drivers, end_ns, [] { return false; }, [](uint64_t) { return false; }, [] {}));
  EXPECT_EQ(drivers.left_ns, 0U) << "the thread waits for it to come back";
  EXPECT_GE(monotonic_ns(), end_ns);
  EXPECT_TRUE(drivers.sleepers.empty());
}

/// Who leaves would have to wake the next one. If the third caller comes too late, on a busy
/// machine, there is another turn.
TEST(Drivers, TheThreadDrivesForAWhileAfterSeveralCallersHaveWaited) {
  using Found = Drivers::Found;
  EXPECT_TRUE(test::eventually([] {
    Drivers drivers;
    const auto comes = [&](Sleeper& caller) {
      caller.is_met = [] { return false; };
      arrive(drivers, caller, monotonic_ns() + 60'000'000'000, true, [] {});
      return caller.found;
    };
    Sleeper first, second, third, fourth;
    EXPECT_EQ(comes(first), Found::kDrives);
    const uint64_t shared_ns = monotonic_ns();
    EXPECT_EQ(comes(second), Found::kSleeps);
    drivers.leave(true);
    EXPECT_EQ(drivers.left_ns, 0U) << "another caller waits, and the thread does not drive";
    drivers.sleepers.clear();
    const Found found = comes(third);
    if (monotonic_ns() >= shared_ns + kSharedNs) return false;
    EXPECT_EQ(found, Found::kSleeps) << "it is alone, but not for long";
    drivers.sleepers.clear();
    std::this_thread::sleep_for(std::chrono::nanoseconds(2 * kSharedNs));
    EXPECT_EQ(comes(fourth), Found::kDrives);
    return true;
  }));
}

TEST(Drivers, WhatAnArrivalLeavesToDoMayMeetItsWait) {
  Drivers drivers;
  bool has_happened = false;
  Sleeper caller;
  caller.is_met = [&] { return has_happened; };
  arrive(drivers, caller, monotonic_ns() + 60'000'000'000, false, [&] { has_happened = true; });
  EXPECT_TRUE(caller.woken.is_released()) << "nobody wakes it";
  EXPECT_EQ(caller.found, Sleeper::Found::kMet);
  EXPECT_TRUE(drivers.sleepers.empty());
}

/// Callers enter, and others wait for what they do, while one of them drives an engine that always
/// has something to do.
TEST(Drivers, CallersGetInWhileACallerDrivesABusyEngine) {
  constexpr int kCallers = 4, kTurns = 200;
  DelegatingMutex mutex;
  Drivers drivers;
  int done = 0;  // under the mutex
  std::vector<std::thread> callers;
  for (int waiter = 0; waiter < 2; ++waiter)
    callers.emplace_back([&] {
      EXPECT_TRUE(wait_until(
          mutex, drivers, monotonic_ns() + 60'000'000'000,
          [&] { return done == kCallers * kTurns; }, [](uint64_t) { return true; }, [] {}));
    });
  for (int caller = 0; caller < kCallers; ++caller)
    callers.emplace_back([&] {
      for (int turn = 0; turn < kTurns; ++turn)
        mutex.run([&] {
          ++done;
          drivers.tell();
        });
    });
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(done, kCallers * kTurns);
  EXPECT_TRUE(drivers.sleepers.empty());
}

/// The service's thread, which drives an engine that is never idle.
class BusyThread : public ::testing::Test {
 protected:
  ~BusyThread() override {
    mutex_.run([this] { drivers_.end(); });
    thread_.join();
  }
  template <typename IsMet>
  bool wait(const IsMet& is_met, uint64_t limit_ns = 60'000'000'000) {
    return wait_until(
        mutex_, drivers_, monotonic_ns() + limit_ns, is_met,
        [this](uint64_t) {
          driven_by_ = std::this_thread::get_id();
          return true;
        },
        [] {});
  }

  DelegatingMutex mutex_;
  Drivers drivers_;
  std::thread::id driven_by_;  // under the mutex
  std::thread thread_{[this] {
    look_until_end(
        mutex_, drivers_,
        [this](uint64_t) {
          driven_by_ = std::this_thread::get_id();
          return true;
        },
        [](Lock&) {});
  }};
};

TEST_F(BusyThread, DoesWhatCallersHandIn) {
  EXPECT_TRUE(
      test::eventually([&] { return mutex_.run([&] { return driven_by_ == thread_.get_id(); }); }));
  std::thread::id did;
  for (int i = 0; i < 100; ++i) mutex_.run([&] { did = std::this_thread::get_id(); });
  EXPECT_EQ(did, thread_.get_id()) << "it never gives the mutex back while the engine is busy";
}

TEST_F(BusyThread, LetsTheOneCallerThatWaitsDrive) {
  EXPECT_TRUE(wait([this] { return driven_by_ == std::this_thread::get_id(); }));
}

TEST_F(BusyThread, ACallerWhoseTimeIsUpIsForgotten) {
  std::thread other([this] { wait([] { return false; }, 20'000 * kUs); });
  EXPECT_FALSE(wait([] { return false; }, 20'000 * kUs));
  other.join();
  EXPECT_TRUE(mutex_.run([this] { return drivers_.sleepers.empty(); }));
}

/// A rail that must be polled before its thread may sleep gives the mutex to nobody.
TEST(Drivers, CallersGetInWhileTheThreadMayNotSleep) {
  DelegatingMutex mutex;
  Drivers drivers;
  std::thread thread([&] {
    look_until_end(
        mutex, drivers, [](uint64_t) { return false; }, [](Lock&) {});
  });
  std::atomic<bool> is_in = false;
  std::thread caller([&] {
    for (int i = 0; i < 100; ++i) mutex.run([] {});
    is_in = true;
  });
  EXPECT_TRUE(test::eventually([&] { return is_in.load(); }, std::chrono::seconds(20)));
  mutex.run([&] { drivers.end(); });
  thread.join();
  caller.join();
}

}  // namespace
}  // namespace braid::fabric
