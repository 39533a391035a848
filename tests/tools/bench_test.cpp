// `braid bench` and the command line as a whole: mistakes are said before anything is measured.
#include <gtest/gtest.h>
#include <unistd.h>

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

TEST(Bench, OptionsThatWouldBeIgnoredAreSaid) {
  for (const auto& [words, said] : std::vector<std::pair<std::vector<std::string>, std::string>>{
           {{"--scenario", "batch", "--paths", "2"}, "--paths means nothing to --scenario"},
           {{"--segment", "8K"}, "--segment is of batches"},
           {{"--scenario", "both", "--direction", "h2d"}, "--direction means nothing"},
           {{"--json", "-"}, "--json - is no file"},
           {{"--server", ""}, "--server: names no server"}}) {
    std::vector<std::string> all{BRAID_COMMAND, "bench"};
    all.insert(all.end(), words.begin(), words.end());
    const ChildResult child = run_child(all);
    EXPECT_EQ(child.exit_code, 1);
    EXPECT_TRUE(has(child.errors, said)) << child.errors;
    EXPECT_EQ(child.output, "");
  }
}

TEST(Output, WhatCannotBePrintedIsAnError) {
  for (const char* words : {"bench --sizes 1M --repeat 1", "topo", "doctor"}) {
    const std::string command =
        std::string(BRAID_COMMAND) + " " + words + " --server h20x8 >/dev/full";
    const ChildResult child = run_child({"sh", "-c", command});
    EXPECT_EQ(child.exit_code, 1) << words << child.errors;
    EXPECT_TRUE(child.errors.starts_with("braid: ")) << child.errors;
  }
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

// The records of `braid bench` with these words, which `launcher` starts; nothing when it fails.
nlohmann::json records_of(std::vector<std::string> words, const Environment& changes = {},
                          const std::vector<std::string>& launcher = {}) {
  const fs::path file =
      fs::path(::testing::TempDir()) / ("bench_test_" + std::to_string(getpid()) + ".json");
  words.insert(words.begin(), {BRAID_COMMAND, "bench", "--repeat", "1", "--json", file});
  words.insert(words.begin(), launcher.begin(), launcher.end());
  const ChildResult child = run_child(words, changes);
  EXPECT_EQ(child.exit_code, 0) << child.errors;
  const bool wants_limit = !has(words.back(), "--no-limit");
  EXPECT_EQ(has(child.output, "of limit"), wants_limit) << child.output;
  std::ifstream stream(file);
  nlohmann::json records = nlohmann::json::parse(stream, nullptr, false);
  fs::remove(file);
  return records;
}

// The last digits depend on when threads run, and so on how busy the machine is.
TEST(Bench, InsideBraidRunNativeCopiesAreNative) {
  const std::vector<std::string> words{"--server", "h200x4", "--sizes", "64M"};
  const auto alone = records_of(words);
  const auto inside = records_of(
      words, {}, {BRAID_COMMAND, "run", "--opening", "wait", "--server", "h200x4", "--"});
  ASSERT_EQ(alone.size(), 2u);
  ASSERT_EQ(inside.size(), 2u);
  for (const size_t row : {0, 1})
    for (const char* figure : {"native_gbps", "braid_gbps"})
      EXPECT_NEAR(inside[row].at(figure).get<double>() / alone[row].at(figure).get<double>(), 1,
                  0.03)
          << figure << inside << alone;
}

// Four links of 55 GB/s, whatever the size of the copies that are held against them.
TEST(Bench, EachRowIsHeldAgainstTheLimitOfTheSameRun) {
  const auto records =
      records_of({"--server", "h200x4", "--direction", "h2d", "--sizes", "1M,64M"});
  ASSERT_EQ(records.size(), 2u);
  for (const auto& record : records) {
    const double braid = record.at("braid_gbps"), limit = record.at("limit_gbps");
    EXPECT_GT(limit, 210) << record;
    EXPECT_LT(limit, 222) << record;
    EXPECT_DOUBLE_EQ(record.at("of_limit"), braid / limit);
    EXPECT_DOUBLE_EQ(record.at("ratio"), braid / record.at("native_gbps").get<double>());
  }
  EXPECT_GT(records[1].at("of_limit"), 0.8);
}

TEST(Bench, TheLimitOfBothWaysAtOnceIsBothWaysOnEveryGpuAtOnce) {
  const auto both =
      records_of({"--server", "h200x4", "--scenario", "both", "--sizes", "32M"}).at(0);
  const auto down = records_of({"--server", "h200x4", "--scenario", "batch", "--direction", "d2h",
                                "--sizes", "32M"})
                        .at(0);
  const double limit = both.at("limit_gbps").at("median");
  EXPECT_GT(limit, 1.2 * down.at("limit_gbps").at("median").get<double>());
  EXPECT_DOUBLE_EQ(both.at("of_limit"), both.at("braid_gbps").at("median").get<double>() / limit);
}

TEST(Bench, TheLimitOfOneGpuIsItsLink) {
  const auto records =
      records_of({"--server", "h200x4", "--sizes", "64M"}, {{"CUDA_VISIBLE_DEVICES", "0"}});
  ASSERT_EQ(records.size(), 2u);
  for (const auto& record : records)
    EXPECT_NEAR(record.at("of_limit").get<double>(), 1, 0.01) << record;
}

TEST(Bench, TheLimitMayBeLeftOut) {
  for (const auto& words :
       {std::vector<std::string>{"--sizes", "4M"}, {"--scenario", "batch", "--sizes", "4M"}}) {
    std::vector<std::string> all = words;
    all.insert(all.end(), {"--server", "h200x4", "--no-limit"});
    for (const auto& record : records_of(all)) {
      EXPECT_TRUE(record.contains("ratio")) << record;
      EXPECT_FALSE(record.contains("limit_gbps") || record.contains("of_limit")) << record;
    }
  }
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
  EXPECT_EQ(run_child({BRAID_COMMAND, "--version"}).exit_code, 0);
}

}  // namespace
}  // namespace braid::test
