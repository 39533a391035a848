// What the kernel says of processes of this host.
#include "fabric/host/processes.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

namespace braid::fabric {
namespace {

constexpr int kCannot = 77;

TEST(HostProcesses, AProcessThatHasEndedIsNamed) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const pid_t child = fork();
  if (child == 0) {
    const Origin self = host_processes()->self();
    _exit(write(ends[1], &self, sizeof self) == sizeof self && pause() == 0);
  }
  Origin origin;
  ASSERT_EQ(read(ends[0], &origin, sizeof origin), static_cast<ssize_t>(sizeof origin));
  const auto processes = host_processes();
  processes->watch(5, origin);
  EXPECT_FALSE(processes->next_ended());
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  EXPECT_EQ(processes->next_ended(), 5u);
  processes->watch(6, origin);
  EXPECT_EQ(processes->next_ended(), 6u) << "it was gone already";
  Origin earlier = processes->self();
  --earlier.started;
  processes->watch(7, earlier);
  EXPECT_EQ(processes->next_ended(), 7u) << "another process has its number";
}

/// What is hidden is not known to have ended.
TEST(HostProcesses, AProcessOfAnotherUserThatIsHiddenIsNotWatched) {
  const Origin parents = host_processes()->self();
  const pid_t child = fork();
  if (child == 0) {
    const bool is_hidden = unshare(CLONE_NEWNS) == 0 &&
                           mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
                           mount("proc", "/proc", "proc", 0, "hidepid=2") == 0 &&
                           setgid(65534) == 0 && setuid(65534) == 0 &&
                           access("/proc/1/stat", F_OK) != 0;
    if (!is_hidden) _exit(kCannot);
    const auto processes = host_processes();
    processes->watch(5, parents);
    _exit(processes->next_ended() ? 1 : 0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  ASSERT_TRUE(WIFEXITED(status));
  if (WEXITSTATUS(status) == kCannot) GTEST_SKIP() << "needs root, and a /proc of its own";
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

}  // namespace
}  // namespace braid::fabric
