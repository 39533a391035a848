// The `braid` command with signals as others have left them.
#include "tests/tools/braid_run.h"

namespace braid::test {
namespace {

// Some supervisors ignore SIGCHLD, and what they start inherits that: the kernel keeps no child's
// end then, which braid's own commands wait for.
TEST(Signals, WhereSigchldIsIgnoredCommandsWorkAndTheProgramInheritsThat) {
  const auto ignoring = [](Words words) {
    words.insert(words.begin(), {"env", "--ignore-signal=CHLD"});
    return run_child(words, {{"CUDA_VISIBLE_DEVICES", "0"}});
  };
  const Words program = {"grep", "SigIgn", "/proc/self/status"};
  Words run = {BRAID_COMMAND, "run", "--server", "h20x8", "--lend", "all", "--"};
  run.insert(run.end(), program.begin(), program.end());
  const ChildResult ran = ignoring(run);
  EXPECT_EQ(ran.errors, "");
  EXPECT_EQ(ran.output, ignoring(program).output);
  const ChildResult doctor =
      ignoring({BRAID_COMMAND, "doctor", "--server", "h20x8", "--lend", "all"});
  EXPECT_EQ(doctor.exit_code, 0) << doctor.output;
  const ChildResult compared = ignoring(
      {BRAID_COMMAND, "compare", "--turns", "1", "--server", "h20x8", "--", "sh", "-c", "exit 3"});
  EXPECT_EQ(compared.exit_code, 1) << compared.output;
  const ChildResult demo = ignoring({BRAID_COMMAND, "fabric", "demo", "--seconds", "2", "--svg",
                                     ::testing::TempDir() + "signals.svg"});
  EXPECT_EQ(demo.exit_code, 0) << demo.output << demo.errors;
}

}  // namespace
}  // namespace braid::test
