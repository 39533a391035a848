// Whose lock is taken over.
#include "fabric/ofi/robust_locks.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <string>

#include "fabric/ofi/doorbell.h"

namespace braid::fabric::ofi {
namespace {

/// That has ended, and been waited for.
pid_t ended_process() {
  const pid_t child = fork();
  if (child == 0) _exit(0);
  waitpid(child, nullptr, 0);
  return child;
}

std::string endpoint_of(pid_t process) {
  return "fi_shm://" + std::to_string(process) + ":test:robust_locks";
}
Bytes bytes_of(const std::string& text) { return std::as_bytes(std::span(text)); }

/// As a process of this number would hold it, in this PID namespace or in one that looks like it.
bool takes_over_from(pid_t process) {
  constexpr int32_t kProcess = (1 << 22) - 1;
  RobustCalls calls;
  calls.carry_messages_only();
  pthread_spinlock_t lock;
  pthread_spin_init(&lock, PTHREAD_PROCESS_PRIVATE);
  const bool is_negative = calls.word() < 0;  // as libc marks locks that are held, on x86
  const int32_t name = (is_negative ? -calls.word() : calls.word()) & ~kProcess;
  const int32_t held = is_negative ? -(name | process) : name | process;
  std::memcpy(const_cast<int*>(&lock), &held, sizeof held);
  const auto take = [&] {
    calls.wait(&lock);
    return int64_t{1};
  };
  return calls.run(RobustCalls::Purpose::kMessage, take) == 1;
}

TEST(RobustLocks, ThatOfAProcessThatHasEndedIsTakenOver) {
  EXPECT_TRUE(takes_over_from(ended_process()));
  EXPECT_FALSE(takes_over_from(getppid())) << "it lives";
}

/// In a PID namespace of another container the number is another process's, which lives.
TEST(RobustLocks, ThatOfAProcessWhoseDoorbellAnswersIsNot) {
  const pid_t number = ended_process();
  const std::string endpoint = endpoint_of(number);
  {
    Doorbell doorbell;
    ASSERT_TRUE(doorbell.add(bytes_of(endpoint)));
    EXPECT_FALSE(takes_over_from(number));
  }
  EXPECT_TRUE(takes_over_from(number));
}

TEST(RobustLocks, ADoorbellThatAKilledProcessHasLeftAnswersNobody) {
  const pid_t child = fork();
  if (child == 0) {
    const std::string endpoint = endpoint_of(getpid());
    Doorbell doorbell;
    if (!doorbell.add(bytes_of(endpoint))) _exit(1);
    raise(SIGKILL);
  }
  int status = 0;
  waitpid(child, &status, 0);
  ASSERT_TRUE(WIFSIGNALED(status));
  EXPECT_TRUE(takes_over_from(child));
  Doorbell().add(bytes_of(endpoint_of(child)));  // removes it
}

}  // namespace
}  // namespace braid::fabric::ofi
