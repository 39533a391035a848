// `braid waits`, `braid switch` and `braid ps`, asked about a program that runs.
#include "programs.h"

namespace braid::test {
namespace {

TEST(Processes, AProgramIsAskedWhatItWaitsForAndSwitchedOffAndOn) {
  const ChildResult child =
      with_braid({BRAID_TEST_CLIENTS "/client_asking", BRAID_COMMAND}, {"--relays", "1,2"});
  const auto statistics = only_statistics(child);
  std::vector<std::string> lines;
  std::istringstream output(child.output);
  for (std::string line; std::getline(output, line);) lines.push_back(line);
  ASSERT_EQ(lines.size(), 4u) << child.output;
  EXPECT_EQ(lines[0], "nothing here waits for braid");
  EXPECT_NE(lines[1].find("GPU 0 h2d 67108864 bytes"), std::string::npos) << lines[1];
  EXPECT_NE(lines[1].find("it waits for the program"), std::string::npos) << lines[1];
  EXPECT_EQ(lines[2], "nothing here waits for braid");
  EXPECT_NE(lines[3].find("client_asking"), std::string::npos) << lines[3];
  EXPECT_NE(lines[3].find(" off "), std::string::npos) << lines[3];
  const char* copy = "cuMemcpyHtoDAsync_v2";
  EXPECT_EQ(counted(statistics, copy, "accelerated").calls, 2u) << statistics;
  EXPECT_EQ(counted(statistics, copy, "switched_off").calls, 1u) << statistics;
}

TEST(Processes, AProcessThatDoesNotUseBraidIsNamed) {
  const ChildResult child = run_child({BRAID_COMMAND, "waits", "1"});
  EXPECT_NE(child.exit_code, 0);
  EXPECT_NE(child.errors.find("process 1 does not use braid"), std::string::npos) << child.errors;
}

}  // namespace
}  // namespace braid::test
