// What signals do to a program stays its own affair once an engine is open: libraries that
// libfabric loads have handlers of their own. This process opens none, since libfabric is loaded
// once.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <string>

#include "braid/fabric.h"

namespace braid {
namespace {

constexpr int kHandled = 7;

void on_signal(int) { _exit(kHandled); }

class FabricSignals : public testing::TestWithParam<const char*> {
 protected:
  static int with_engine(int (*then)()) {
    const auto opened = Fabric::open({GetParam(), {"127.0.0.1"}});
    return opened.ok() ? then() : 3;
  }
  /// How a child ends that has done `first`, opened an engine, and done `then`.
  static int status_of_child(void (*first)(), int (*then)()) {
    const pid_t child = fork();
    if (child == 0) {
      const rlimit no_core{0, 0};
      (void)setrlimit(RLIMIT_CORE, &no_core);
      first();
      _exit(with_engine(then));
    }
    int status = -1;
    waitpid(child, &status, 0);
    // Of shm: one that dies by a signal leaves it, for the next engine of that name to replace.
    (void)unlink(("/dev/shm/braid-doorbell-" + std::to_string(child) + ":0:0").c_str());
    return status;
  }
};

void nothing() {}

template <int kSignal>
int meet() {
  return raise(kSignal);
}

template <int kSignal>
void handle() {
  (void)std::signal(kSignal, on_signal);
}

void expect_exit_code(int status, int code) {
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == code)
      << "signal " << WTERMSIG(status) << ", exit code " << WEXITSTATUS(status);
}

void expect_signal(int status, int signal) {
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == signal)
      << "signal " << WTERMSIG(status) << ", exit code " << WEXITSTATUS(status);
}

TEST_P(FabricSignals, AProgramDiesAsWithoutAnEngine) {
  expect_signal(status_of_child(nothing, meet<SIGTERM>), SIGTERM);
  expect_signal(status_of_child(nothing, meet<SIGINT>), SIGINT);
  expect_signal(status_of_child(nothing, meet<SIGSEGV>), SIGSEGV);
}

TEST_P(FabricSignals, AProgramsOwnHandlersStay) {
  expect_exit_code(status_of_child(handle<SIGTERM>, meet<SIGTERM>), kHandled);
  expect_exit_code(status_of_child(handle<SIGINT>, meet<SIGINT>), kHandled);
  expect_exit_code(status_of_child(handle<SIGSEGV>, meet<SIGSEGV>), kHandled);
}

TEST_P(FabricSignals, ChildrenOfTheProgramSeeNoVariableOfBraids) {
  const auto look = [] { return std::getenv("IPATH_NO_BACKTRACE") == nullptr ? kHandled : 1; };
  expect_exit_code(status_of_child(nothing, look), kHandled);
}

INSTANTIATE_TEST_SUITE_P(Providers, FabricSignals,
                         testing::Values("tcp;ofi_rxm", "net", "shm", "local"),
                         [](const auto& each) { return std::string(each.param).substr(0, 3); });

}  // namespace
}  // namespace braid
