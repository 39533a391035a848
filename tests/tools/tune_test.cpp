// `braid tune`: what it writes is what programs and `braid doctor` then go by.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>

#include "tests/support/child.h"

namespace braid::test {
namespace {

namespace fs = std::filesystem;
using Words = std::vector<std::string>;

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

// A cache folder of the test's own.
class Tune : public ::testing::Test {
 protected:
  void SetUp() override { fs::remove_all(cache_); }
  void TearDown() override { fs::remove_all(cache_); }

  ChildResult braid(const Words& words) const {
    Words all{BRAID_COMMAND};
    all.insert(all.end(), words.begin(), words.end());
    return run_child(all, {{"XDG_CACHE_HOME", cache_}, {"BRAID_COSTS", ""}});
  }

  std::vector<fs::path> files() const {
    std::vector<fs::path> all;
    if (fs::exists(cache_ / "braid"))
      for (const auto& entry : fs::directory_iterator(cache_ / "braid"))
        all.push_back(entry.path());
    return all;
  }

  const fs::path cache_ =
      fs::path(::testing::TempDir()) / ("braid_tune_test_" + std::to_string(getpid()));
};

TEST_F(Tune, WhatItMeasuresIsUsed) {
  const ChildResult tuned = braid({"tune", "--server", "h200x4"});
  ASSERT_EQ(tuned.exit_code, 0) << tuned.errors;
  std::printf("%s\n", tuned.output.c_str());
  ASSERT_EQ(files().size(), 1u);
  EXPECT_TRUE(has(tuned.output, "Written to " + files()[0].string())) << tuned.output;
  EXPECT_TRUE(files()[0].filename().string().starts_with("4x-nvidia-h200-")) << files()[0];

  const ChildResult doctor = braid({"doctor", "--server", "h200x4"});
  EXPECT_EQ(doctor.exit_code, 0) << doctor.output;
  EXPECT_TRUE(has(doctor.output, "less than an hour ago: " + files()[0].string())) << doctor.output;
  EXPECT_TRUE(has(braid({"doctor", "--server", "h20x8"}).output, "costs    defaults"))
      << "another server";
}

TEST_F(Tune, ADryRunWritesNothing) {
  const ChildResult tuned = braid({"tune", "--server", "h20x8", "--dry-run"});
  EXPECT_EQ(tuned.exit_code, 0) << tuned.errors;
  std::printf("%s\n", tuned.output.c_str());
  EXPECT_TRUE(has(tuned.output, "threshold")) << tuned.output;
  EXPECT_TRUE(files().empty());
}

TEST_F(Tune, WithoutAPlaceForTheFileNothingIsMeasured) {
  const ChildResult tuned = run_child({BRAID_COMMAND, "tune", "--server", "h20x8"});
  EXPECT_EQ(tuned.exit_code, 1) << "BRAID_COSTS is none in tests";
  EXPECT_TRUE(has(tuned.errors, "--out FILE")) << tuned.errors;
  EXPECT_EQ(tuned.output, "");
}

TEST_F(Tune, ABrokenFileIsNamedWithItsRemedyAndNotUsed) {
  const fs::path file = fs::path(cache_.string() + ".json");
  std::ofstream(file) << "{\"server\": 3";
  const Environment costs{{"BRAID_COSTS", file}};
  const ChildResult doctor = run_child({BRAID_COMMAND, "doctor", "--server", "h20x8"}, costs);
  EXPECT_EQ(doctor.exit_code, 1);
  EXPECT_TRUE(has(doctor.output, "FAIL costs    " + file.string())) << doctor.output;
  const ChildResult program = run_child(
      {BRAID_COMMAND, "run", "--server", "h20x8", "--stats", "json", "--", BRAID_COMMAND, "probe"},
      costs);
  EXPECT_EQ(program.exit_code, 0) << program.errors;
  EXPECT_TRUE(has(program.other_errors(), file.string())) << program.errors;
  EXPECT_TRUE(has(program.other_errors(), "braid tune")) << program.errors;
  EXPECT_GT(path_bytes(program.statistics().at(0)), 0u) << "the defaults carry on";
  fs::remove(file);
}

}  // namespace
}  // namespace braid::test
