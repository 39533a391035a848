// `braid bench` and the command line as a whole: mistakes are said before anything is measured.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "tests/support/child.h"

namespace braid::test {
namespace {

namespace fs = std::filesystem;

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST(Bench, AFileThatCannotBeWrittenIsSaidBeforeMeasuring) {
  const ChildResult child = run_child({BRAID_COMMAND, "bench", "--server", "h20x8", "--sizes", "4M",
                                       "--repeat", "1", "--json", "/no/such/folder/x.json"});
  EXPECT_EQ(child.exit_code, 1);
  EXPECT_EQ(child.output, "");
  EXPECT_TRUE(has(child.errors, "'/no/such/folder/x.json': No such file")) << child.errors;
}

TEST(Bench, TheEmulatorsOwnCpuTimeIsNotReported) {
  const fs::path file = fs::path(::testing::TempDir()) / "bench_test.json";
  const ChildResult child = run_child({BRAID_COMMAND, "bench", "--server", "h20x8", "--sizes", "4M",
                                       "--repeat", "1", "--json", file});
  EXPECT_EQ(child.exit_code, 0) << child.errors;
  std::ifstream stream(file);
  const std::string json{std::istreambuf_iterator<char>(stream), {}};
  EXPECT_TRUE(has(json, "\"braid_gbps\"")) << json;
  EXPECT_FALSE(has(json + child.output, "submit")) << json << child.output;
  fs::remove(file);
}

TEST(Bench, ABrokenServerFileIsAnsweredWithItsMistakeOnly) {
  const fs::path file = fs::path(::testing::TempDir()) / "bench_test_broken.json";
  std::ofstream(file) << "{\"name\": 3}";
  const ChildResult child = run_child({BRAID_COMMAND, "bench", "--server", file});
  EXPECT_EQ(child.exit_code, 1);
  EXPECT_TRUE(child.errors.starts_with("braid: " + file.string() + ": ")) << child.errors;
  EXPECT_FALSE(has(child.errors, "CUDA")) << child.errors;
  EXPECT_FALSE(has(child.errors, "emulated")) << child.errors;
  fs::remove(file);
}

TEST(CommandLine, MistakesAreBraids) {
  const ChildResult child = run_child({BRAID_COMMAND, "bench", "--repeat", "0"});
  EXPECT_EQ(child.exit_code, 1);
  EXPECT_TRUE(child.errors.starts_with("braid: --repeat: ")) << child.errors;
  EXPECT_TRUE(has(child.errors, "braid bench --help")) << child.errors;
  const ChildResult none = run_child(
      {BRAID_COMMAND, "bench", "--server", "h20x8", "--scenario", "batch", "--segment", "0"});
  EXPECT_TRUE(has(none.errors, "'0' is not a segment's size")) << none.errors;
  EXPECT_EQ(run_child({BRAID_COMMAND}).exit_code, 1);
  EXPECT_EQ(run_child({BRAID_COMMAND, "--version"}).exit_code, 0);
}

}  // namespace
}  // namespace braid::test
