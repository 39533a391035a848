// What a forked child finds of an object whose lock another thread had.
#include "preload/renewed_in_child.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <mutex>
#include <thread>
#include <vector>

namespace braid::preload {
namespace {

struct Locked {
  std::mutex lock;
  int value = 1;
};

TEST(RenewedInChild, AChildHasNoLockThatAnotherThreadHad) {
  std::atomic<bool> is_locked{false}, is_over{false};
  std::thread holder([&] {
    const std::lock_guard hold(renewed_in_child<Locked>().lock);
    renewed_in_child<Locked>().value = 2;
    is_locked = true;
    while (!is_over) std::this_thread::yield();
  });
  while (!is_locked) std::this_thread::yield();
  const pid_t child = fork();
  if (child == 0) {
    alarm(60);  // a lock that nobody gives back
    const std::lock_guard hold(renewed_in_child<Locked>().lock);
    _exit(renewed_in_child<Locked>().value == 1 ? 0 : 1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  is_over = true;
  holder.join();
  EXPECT_EQ(renewed_in_child<Locked>().value, 2) << "the parent keeps its own";
}

TEST(RenewedInChild, ThreadsThatComeFirstTogetherHaveOne) {
  struct Other : Locked {};
  std::array<Other*, 8> seen{};
  std::vector<std::thread> threads;
  for (Other*& one : seen) threads.emplace_back([&one] { one = &renewed_in_child<Other>(); });
  for (std::thread& thread : threads) thread.join();
  for (const Other* one : seen) EXPECT_EQ(one, seen[0]);
}

}  // namespace
}  // namespace braid::preload
