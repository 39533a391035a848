// `braid doctor`: a line for each check, and an exit code that says whether braid can help.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <sstream>

#include "tests/support/child.h"

namespace braid::test {
namespace {

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

TEST(Doctor, FindsAnEmulatedServerWell) {
  const ChildResult child = run_child({BRAID_COMMAND, "doctor", "--server", "h20x8"});
  EXPECT_EQ(child.exit_code, 0) << child.output << child.errors;
  const auto lines = lines_of(child.output);
  ASSERT_EQ(lines.size(), 6u) << child.output;
  const char* const checks[] = {"ok   driver",  "ok   peers", "ok   costs    defaults",
                                "ok   library", "ok   hooks", "ok   copy"};
  for (size_t index = 0; index < lines.size(); ++index)
    EXPECT_TRUE(lines[index].starts_with(checks[index])) << lines[index];
  EXPECT_NE(lines[0].find("8 GPUs"), std::string::npos) << lines[0];
  EXPECT_NE(lines[1].find("GPU 7: relays 0,1,2,3,4,5,6"), std::string::npos) << lines[1];
  EXPECT_NE(lines[5].find("4 copies verified"), std::string::npos) << lines[5];
}

TEST(Doctor, ListsTheHooksWhenAsked) {
  const ChildResult child = run_child({BRAID_COMMAND, "doctor", "--server", "h20x8", "--verbose"});
  for (const char* symbol : {"cuGetProcAddress_v2", "cuMemcpyHtoDAsync_v2_ptsz", "cuMemHostAlloc"})
    EXPECT_NE(child.output.find(symbol), std::string::npos) << child.output;
}

TEST(Doctor, AnUnknownServerIsNamed) {
  const ChildResult child = run_child({BRAID_COMMAND, "doctor", "--server", "nowhere"});
  EXPECT_EQ(child.exit_code, 1);
  EXPECT_NE(child.errors.find("'nowhere'"), std::string::npos) << child.errors;
}

TEST(Doctor, WithoutADriverSaysTheRemedy) {
  if (dlopen("libcuda.so.1", RTLD_LAZY) != nullptr) GTEST_SKIP() << "this machine has a driver";
  const ChildResult child = run_child({BRAID_COMMAND, "doctor"});
  EXPECT_EQ(child.exit_code, 1);
  EXPECT_TRUE(child.output.starts_with("FAIL driver")) << child.output;
  EXPECT_NE(child.output.find("Install the NVIDIA driver"), std::string::npos) << child.output;
  EXPECT_NE(child.output.find("ok   library"), std::string::npos) << child.output;
}

TEST(Doctor, TheProbeIsNotInTheHelp) {
  const ChildResult child = run_child({BRAID_COMMAND, "--help"});
  EXPECT_EQ(child.output.find("probe"), std::string::npos);
}

}  // namespace
}  // namespace braid::test
