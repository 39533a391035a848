// `braid ps` and `braid switch` in containers that share /dev/shm: each has processes of its own,
// with the same numbers.
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "multipath/process_table.h"
#include "tests/support/child.h"

namespace braid::test {
namespace {

using multipath::ProcessTable;

constexpr const char* kName = "elsewhere";

// Process 1 of a PID namespace of its own, with a row in this user's table until `until` closes.
void live_in_a_container(int ready, int until) {
  const auto table = ProcessTable::open(ProcessTable::usual_name());
  multipath::ProcessRow* const row = table.ok() ? table.value()->claim(kName) : nullptr;
  char letter = row != nullptr ? 'y' : 'n';
  if (write(ready, &letter, 1) != 1 || read(until, &letter, 1) < 0) return;
  letter = row != nullptr && row->is_off != 0 ? 'y' : 'n';
  if (write(ready, &letter, 1) != 1) return;
}

TEST(Processes, ThoseOfAnotherPidNamespaceAreShownAndLeftAlone) {
  int ready[2];
  int until[2];
  ASSERT_EQ(pipe(ready), 0);
  ASSERT_EQ(pipe(until), 0);
  const pid_t outer = fork();
  if (outer == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    close(until[1]);
    if (unshare(CLONE_NEWPID) != 0) _exit(77);
    const pid_t inner = fork();
    if (inner == 0) live_in_a_container(ready[1], until[0]);
    if (inner == 0) _exit(0);
    waitpid(inner, nullptr, 0);
    _exit(0);
  }
  close(ready[1]);
  close(until[0]);
  char letter = 0;
  if (read(ready[0], &letter, 1) != 1) {
    waitpid(outer, nullptr, 0);
    GTEST_SKIP() << "needs root, for a PID namespace";
  }
  ASSERT_EQ(letter, 'y');
  const std::string all = run_child({BRAID_COMMAND, "ps"}).output;
  const size_t at = all.find(kName);
  ASSERT_NE(at, std::string::npos) << all;
  EXPECT_NE(all.substr(at, all.find('\n', at) - at).find(", in another namespace"),
            std::string::npos)
      << all;
  const ChildResult change = run_child({BRAID_COMMAND, "switch", "off", "1"});
  EXPECT_EQ(change.exit_code, 1);
  EXPECT_NE(change.errors.find("process 1 does not use braid"), std::string::npos) << change.errors;
  close(until[1]);
  EXPECT_EQ(read(ready[0], &letter, 1), 1);
  EXPECT_EQ(letter, 'n') << "it was switched off from outside";
  waitpid(outer, nullptr, 0);
}

}  // namespace
}  // namespace braid::test
