// A mutex whose holder does what others hand in.
#include "fabric/library/delegating_mutex.h"

#include <gtest/gtest.h>

#include <atomic>
#include <new>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "support/eventually.h"

namespace braid::fabric {
namespace {

using Id = std::thread::id;

/// A thread that holds the mutex until `leave`, and serves it meanwhile, if it does.
class Holder {
 public:
  explicit Holder(DelegatingMutex& mutex, bool serves = true) : mutex_(mutex), serves_(serves) {
    while (!holds_) std::this_thread::yield();
  }
  ~Holder() { leave(); }
  void leave() {
    leaves_ = true;
    if (thread_.joinable()) thread_.join();
  }
  Id id() const { return thread_.get_id(); }

 private:
  void hold() {
    const std::unique_lock lock(mutex_);
    holds_ = true;
    while (!leaves_)
      if (serves_) mutex_.serve();
  }

  DelegatingMutex& mutex_;
  const bool serves_;
  std::atomic<bool> holds_ = false, leaves_ = false;
  std::thread thread_{[this] { hold(); }};
};

TEST(DelegatingMutex, RunsTheWorkHereIfItIsFree) {
  DelegatingMutex mutex;
  EXPECT_EQ(mutex.run([] { return std::this_thread::get_id(); }), std::this_thread::get_id());
  EXPECT_TRUE(mutex.try_lock()) << "it is free again";
  mutex.unlock();
}

TEST(DelegatingMutex, RunsTheWorkInTheThreadThatHoldsIt) {
  DelegatingMutex mutex;
  const Holder holder(mutex);
  EXPECT_EQ(mutex.run([] { return std::this_thread::get_id(); }), holder.id());
}

/// What asks CUDA for the current context has to know whose.
TEST(DelegatingMutex, RunsTheWorkHereIfAskedTo) {
  DelegatingMutex mutex;
  const Holder holder(mutex);
  EXPECT_EQ(mutex.run_here([] { return std::this_thread::get_id(); }), std::this_thread::get_id());
}

TEST(DelegatingMutex, WhoeverLeavesDoesWhatWasHandedIn) {
  DelegatingMutex mutex;
  Holder holder(mutex, false);
  std::atomic<int> done = 0;
  std::vector<std::thread> callers;
  for (int caller = 0; caller < 3; ++caller)
    callers.emplace_back([&] { mutex.run([&] { ++done; }); });
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_EQ(done, 0);
  holder.leave();
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(done, 3);
}

/// Who gives up waiting for what it handed in needs to know when that will not be called any more.
TEST(DelegatingMutex, WhatIsHandedInLaterIsCalledLater) {
  DelegatingMutex mutex;
  Holder holder(mutex, false);
  std::vector<int> called;  // under the mutex
  const auto first = [&] { called.push_back(1); };
  auto errand = DelegatingMutex::errand_of(first, nullptr);
  mutex.hand_in(errand);
  std::thread other([&] { holder.leave(); });
  mutex.run([&] { called.push_back(2); });
  other.join();
  EXPECT_EQ(called, (std::vector<int>{1, 2}));
}

TEST(DelegatingMutex, ThrowsWhatTheWorkThrowsAndStaysUsable) {
  DelegatingMutex mutex;
  const auto throws = []() -> int { throw std::bad_alloc(); };
  const auto expect_thrown = [&] {
    EXPECT_THROW(mutex.run(throws), std::bad_alloc);
    EXPECT_THROW(mutex.run_here(throws), std::bad_alloc);
    EXPECT_EQ(mutex.run([] { return 7; }), 7);
  };
  expect_thrown();
  const Holder holder(mutex);
  expect_thrown();
}

/// Some by `run`, some by `run_here`, some by the lock: each alone, none lost.
TEST(DelegatingMutex, WorkOfManyThreadsRunsOnceAndAlone) {
  constexpr int kThreads = 6, kTurns = 20'000;
  DelegatingMutex mutex;
  int done = 0;  // under the mutex
  bool is_in = false;
  const auto work = [&] {
    EXPECT_FALSE(is_in);
    is_in = true;
    ++done;
    is_in = false;
  };
  std::vector<std::thread> threads;
  for (int thread = 0; thread < kThreads; ++thread)
    threads.emplace_back([&, thread] {
      for (int turn = 0; turn < kTurns; ++turn) {
        if (thread % 3 == 0) mutex.run(work);
        if (thread % 3 == 1) mutex.run_here(work);
        if (thread % 3 == 2) {
          const std::unique_lock lock(mutex);
          mutex.serve();
          work();
        }
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(done, kThreads * kTurns);
}

TEST(Parked, IsReleasedBeforeOrAfterItWaits) {
  Parked early;
  early.release();
  EXPECT_TRUE(early.await());
  Parked late;
  std::thread other([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    late.release();
  });
  EXPECT_TRUE(late.await());
  other.join();
}

TEST(Parked, WaitsForItsTimeAndNoLonger) {
  Parked parked;
  for (const uint64_t limit_ns : {0, 5'000, 3'000'000}) {
    const uint64_t begun_ns = monotonic_ns();
    EXPECT_FALSE(parked.await(begun_ns + limit_ns));
    EXPECT_GE(monotonic_ns(), begun_ns + limit_ns);
  }
  parked.release();
  EXPECT_TRUE(parked.await(0)) << "it was released before its time was up";
}

}  // namespace
}  // namespace braid::fabric
