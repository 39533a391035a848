// What the kernel says of processes of this host.
#include "fabric/host/processes.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <utility>

namespace braid::fabric {
namespace {

constexpr int kCannot = 77;

/// A process that says what it is, and waits for its end.
class Child {
 public:
  Child() {
    int ends[2];
    if (pipe(ends) != 0) return;
    process_ = fork();
    if (process_ == 0) {
      const Origin self = host_processes()->self();
      _exit(write(ends[1], &self, sizeof self) == sizeof self && pause() == 0);
    }
    EXPECT_EQ(read(ends[0], &origin, sizeof origin), static_cast<ssize_t>(sizeof origin));
    close(ends[0]);
    close(ends[1]);
  }
  ~Child() { end(); }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  void end() {
    if (process_ <= 0) return;
    kill(process_, SIGKILL);
    waitpid(std::exchange(process_, -1), nullptr, 0);
  }

  Origin origin;

 private:
  pid_t process_ = -1;
};

bool is_readable(int descriptor) {
  pollfd awaited{descriptor, POLLIN, 0};
  return poll(&awaited, 1, 0) == 1;
}

TEST(HostProcesses, AProcessThatHasEndedIsNamed) {
  Child child;
  const auto processes = host_processes();
  processes->watch(5, child.origin);
  EXPECT_FALSE(processes->next_ended());
  child.end();
  EXPECT_EQ(processes->next_ended(), 5u);
  processes->watch(6, child.origin);
  EXPECT_EQ(processes->next_ended(), 6u) << "it was gone already";
  Origin earlier = processes->self();
  --earlier.started;
  processes->watch(7, earlier);
  EXPECT_EQ(processes->next_ended(), 7u) << "another process has its number";
}

/// So an engine that sleeps is woken by an end, and then sleeps again.
TEST(HostProcesses, ADescriptorTellsOfAnEndUntilItIsNamed) {
  Child child, other;
  const auto processes = host_processes();
  processes->watch(5, child.origin);
  processes->watch(6, other.origin);
  const int descriptor = processes->descriptor();
  ASSERT_GE(descriptor, 0);
  EXPECT_FALSE(is_readable(descriptor));
  child.end();
  EXPECT_TRUE(is_readable(descriptor));
  EXPECT_EQ(processes->next_ended(), 5u);
  EXPECT_FALSE(is_readable(descriptor));
  processes->forget(6);
  other.end();
  EXPECT_FALSE(is_readable(descriptor)) << "nobody asks for its end any more";
}

/// Otherwise an engine would wait for a word that does not come.
TEST(HostProcesses, OfAProcessThatHadEndedBeforeNothingTells) {
  Child child;
  child.end();
  const auto processes = host_processes();
  processes->watch(5, child.origin);
  EXPECT_LT(processes->descriptor(), 0);
  EXPECT_EQ(processes->next_ended(), 5u);
  EXPECT_GE(processes->descriptor(), 0);
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
