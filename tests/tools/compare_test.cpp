// `braid compare`: what it says of both sides, and what it refuses.
#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "tests/tools/braid_run.h"

namespace braid::test {
namespace {

TEST(Compare, ShowsBothSidesAndWhatBecameOfTheCopies) {
  const ChildResult child =
      run_child({BRAID_COMMAND, "compare", "--turns", "2", "--server", "h20x8", "--opening", "wait",
                 "--threshold", "4M", "--", BRAID_TEST_CLIENTS "/client_scenarios", "copy_once"});
  EXPECT_EQ(child.exit_code, 0) << child.errors;
  for (const char* part : {"natively", "under braid", "exit code", "accelerated", "below_threshold",
                           "In the last turn 1 of 14 copies"})
    EXPECT_NE(child.output.find(part), std::string::npos) << part << " in " << child.output;
}

TEST(Compare, ByDefaultSaysWhyCopiesStayedNative) {
  const ChildResult child = run_child({BRAID_COMMAND, "compare", "--server", "h20x8", "--",
                                       BRAID_TEST_CLIENTS "/client_scenarios", "copy_once"});
  EXPECT_EQ(child.exit_code, 0) << child.errors;
  EXPECT_NE(child.output.find("below_threshold"), std::string::npos) << child.output;
}

// One side fails, as a program that cannot live with braid would.
TEST(Compare, SaysThatAProgramEndsDifferently) {
  const ChildResult child = run_child({BRAID_COMMAND, "compare", "--turns", "1", "--server",
                                       "h20x8", "--", "sh", "-c", "test -z \"$LD_PRELOAD\""});
  EXPECT_EQ(child.exit_code, 1);
  EXPECT_NE(child.errors.find("did not end under braid as it does natively"), std::string::npos)
      << child.errors;
}

TEST(Compare, FailsIfTheProgramDoes) {
  const ChildResult child =
      run_child({BRAID_COMMAND, "compare", "--turns", "1", "--server", "h20x8", "--", "false"});
  EXPECT_EQ(child.exit_code, 1);
  EXPECT_NE(child.output.find("exit code"), std::string::npos) << child.output;
  EXPECT_NE(child.errors.find("the program has failed"), std::string::npos) << child.errors;
}

TEST(Compare, NamesTheProgramThatIsNotThereAndOptionsOfItsOwn) {
  expect_refusal(run_child({BRAID_COMMAND, "compare", "--", "no-such-program"}), 1,
                 {"there is no program 'no-such-program'", "Check the name"});
  expect_refusal(run_child({BRAID_COMMAND, "compare", "./prog", "1"}), 1,
                 {"'./prog' stands before --", "Write: braid compare -- ./prog 1"});
  expect_refusal(run_child({BRAID_COMMAND, "compare", "--stats", "text", "--", "true"}), 1,
                 {"--stats"});
}

TEST(Compare, WithoutATemporaryFolderSaysTheRemedy) {
  expect_refusal(run_child({BRAID_COMMAND, "compare", "--server", "h20x8", "--", "true"},
                           {{"TMPDIR", "/nonexistent"}}),
                 1, {"no folder can be made in /nonexistent", "Set TMPDIR"});
}

TEST(Compare, TheNativeSideIsNativeInsideBraidRun) {
  const ChildResult child =
      braid_run(kEmulated, {BRAID_COMMAND, "run", "--native", "--server", "h20x8", "--", "sh", "-c",
                            "echo \"<$LD_PRELOAD>\""});
  EXPECT_EQ(child.output, "<>\n") << child.errors;
}

TEST(Compare, WhatBraidRunRefusesIsSaidOnce) {
  const ChildResult child =
      run_child({BRAID_COMMAND, "compare", "--server", "h20x8", "--relays", "x", "--", "true"});
  EXPECT_EQ(child.exit_code, 1);
  EXPECT_NE(child.errors.find("nothing was compared"), std::string::npos) << child.errors;
  EXPECT_EQ(std::count(child.errors.begin(), child.errors.end(), '\n'), 2) << child.errors;
  EXPECT_EQ(child.output, "");
}

// A batch system ends it so, or somebody who closes the terminal.
TEST(Compare, WhatEndsItEndsTheProgramAndLeavesNoFolder) {
  const std::string folder = ::testing::TempDir() + "compare_" + std::to_string(getpid());
  for (const char* signal : {"TERM", "HUP"}) {
    std::filesystem::create_directories(folder + "/temporary");
    const std::string script = "cd " + folder +
                               R"(
TMPDIR=$PWD/temporary "$0" compare --server h20x8 -- sh -c 'echo $$ >program; exec sleep 60' &
until test -s program; do sleep 0.1; done
kill -)" + signal + R"( $!
wait $!
echo "exit code $?"
kill -0 $(cat program) 2>/dev/null && echo the program goes on
ls temporary)";
    const ChildResult child = run_child({"sh", "-c", script, BRAID_COMMAND});
    std::filesystem::remove_all(folder);
    EXPECT_EQ(child.output, "exit code 1\n") << signal;
    EXPECT_EQ(child.errors, "braid: nothing was compared: interrupted\n") << signal;
  }
}

}  // namespace
}  // namespace braid::test
