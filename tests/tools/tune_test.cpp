// `braid tune`: what it writes is what programs and `braid doctor` then go by.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>

#include "multipath/cost_file.h"
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
    return run_child(all, {{"XDG_CACHE_HOME", cache_}});
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

TEST_F(Tune, AFolderThatIsNotThereIsSaidBeforeMeasuring) {
  const ChildResult tuned = braid({"tune", "--server", "h20x8", "--out", cache_ / "a" / "b.json"});
  EXPECT_EQ(tuned.exit_code, 1);
  EXPECT_EQ(tuned.output, "");
  EXPECT_TRUE(has(tuned.errors, "b.json': No such file")) << tuned.errors;
}

TEST_F(Tune, OnlyARegularFileIsReplaced) {
  fs::create_directories(cache_);
  const fs::path file = cache_ / "fifo";
  ASSERT_EQ(mkfifo(file.c_str(), 0600), 0);
  const ChildResult tuned = braid({"tune", "--server", "h20x8", "--out", file});
  EXPECT_EQ(tuned.exit_code, 1);
  EXPECT_EQ(tuned.output, "") << "nothing is measured";
  EXPECT_TRUE(has(tuned.errors, "fifo' is no regular file")) << tuned.errors;
  EXPECT_TRUE(fs::is_fifo(file));
}

TEST_F(Tune, ALinkLeadsToTheFile) {
  fs::create_directories(cache_);
  std::ofstream(cache_ / "costs.json") << "old";
  fs::create_symlink("costs.json", cache_ / "link");
  ASSERT_TRUE(multipath::write_cost_file(cache_ / "link", {"x", 1, {}}).ok());
  EXPECT_TRUE(fs::is_symlink(cache_ / "link"));
  EXPECT_TRUE(multipath::read_cost_file(cache_ / "costs.json").ok());
}

TEST_F(Tune, ADryRunWritesNothing) {
  const ChildResult tuned = braid({"tune", "--server", "h20x8", "--dry-run"});
  EXPECT_EQ(tuned.exit_code, 0) << tuned.errors;
  std::printf("%s\n", tuned.output.c_str());
  EXPECT_TRUE(has(tuned.output, "threshold")) << tuned.output;
  EXPECT_TRUE(files().empty());
}

TEST_F(Tune, WithoutAPlaceForTheFileNothingIsMeasured) {
  const ChildResult tuned =
      run_child({BRAID_COMMAND, "tune", "--server", "h20x8"}, {{"BRAID_COSTS", "none"}});
  EXPECT_EQ(tuned.exit_code, 1);
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
  const ChildResult refused =
      run_child({BRAID_COMMAND, "run", "--server", "h20x8", "--", "true"}, costs);
  EXPECT_EQ(refused.exit_code, 125) << "nothing starts";
  EXPECT_TRUE(has(refused.errors, file.string())) << refused.errors;
  const ChildResult program =
      run_child({BRAID_COMMAND, "probe"}, waiting({{"BRAID_COSTS", file},
                                                   {"BRAID_STATS", "json"},
                                                   {"BRAID_SERVER", "h20x8"},
                                                   {"LD_LIBRARY_PATH", BRAID_EMULATOR_FOLDER},
                                                   {"LD_PRELOAD", BRAID_PRELOAD_LIBRARY}}));
  EXPECT_EQ(program.exit_code, 0) << program.errors;
  EXPECT_TRUE(has(program.other_errors(), file.string())) << program.errors;
  EXPECT_TRUE(has(program.other_errors(), "braid tune")) << program.errors;
  EXPECT_GT(path_bytes(program.statistics().at(0)), 0u) << "the defaults carry on";
  fs::remove(file);
}

// What `braid bench` reads with one mover, beside what the tuned model expects.
class Predictions : public Tune {
 protected:
  // The emulated driver takes its time for each call, which the model has as one launch a path.
  static constexpr double kTolerance = 0.26;

  void SetUp() override {
    Tune::SetUp();
    fs::create_directories(cache_);
    const ChildResult tuned = braid({"tune", "--server", kServer, "--out", costs_file()});
    ASSERT_EQ(tuned.exit_code, 0) << tuned.errors;
    std::printf("%s\n", tuned.output.c_str());
    auto file = multipath::read_cost_file(costs_file());
    ASSERT_TRUE(file.ok()) << file.status().message();
    costs_ = file.value().costs;
  }

  std::string costs_file() const { return cache_ / "costs.json"; }

  nlohmann::json bench(const std::string& mover, Words words) const {
    const std::string records = cache_ / "bench.json";
    words.insert(words.begin(), {BRAID_COMMAND, "bench", "--server", kServer, "--repeat", "1"});
    words.insert(words.end(), {"--json", records});
    const ChildResult ran = run_child(
        words, {{"BRAID_MOVER", mover}, {"BRAID_THRESHOLD", "1"}, {"BRAID_COSTS", "none"}});
    EXPECT_EQ(ran.exit_code, 0) << ran.errors;
    std::ifstream stream(records);
    return nlohmann::json::parse(stream, nullptr, false);
  }

  void compare(multipath::Mover mover, const nlohmann::json& record, double gbps) const {
    multipath::PlanRequest request;
    request.direction = record.at("direction") == "h2d" ? multipath::Direction::kHostToDevice
                                                        : multipath::Direction::kDeviceToHost;
    request.size_bytes = record.at("size_bytes");
    const uint64_t segment_bytes = record.value("segment_bytes", uint64_t{0});
    if (segment_bytes != 0) request.segments = request.size_bytes / segment_bytes;
    request.paths = kGpus;
    request.far_relays = kGpus / 2;
    int paths = 0;
    const double expected_us = multipath::expected_us(costs_, mover, request, paths);
    const double seen_us = static_cast<double>(request.size_bytes) / gbps / 1e3;
    std::printf("%-12s %s %9lu bytes, %6lu segments: %8.1f us expected, %8.1f seen\n",
                multipath::mover_name(mover), record.at("direction").get<std::string>().c_str(),
                static_cast<unsigned long>(request.size_bytes),
                static_cast<unsigned long>(request.segments), expected_us, seen_us);
    EXPECT_NEAR(expected_us / seen_us, 1, kTolerance);
  }

  static constexpr const char* kServer = "h20x8";
  static constexpr int kGpus = 8;
  multipath::CostModel costs_;
};

TEST_F(Predictions, HoldForSingleCopiesByBothMovers) {
  for (const auto& [mover, option] : {std::pair{multipath::Mover::kKernel, "kernel"},
                                      {multipath::Mover::kCopyEngine, "copy-engine"}})
    for (const nlohmann::json& record : bench(option, {"--sizes", "12M,32M,96M"})) {
      compare(mover, record, record.at("braid_gbps"));
      compare(multipath::Mover::kNative, record, record.at("native_gbps"));
    }
}

TEST_F(Predictions, HoldForBatches) {
  for (const char* segment : {"8K", "32K", "128K"})
    for (const nlohmann::json& record :
         bench("kernel", {"--scenario", "batch", "--sizes", "32M", "--segment", segment})) {
      compare(multipath::Mover::kKernel, record, record.at("braid_gbps").at("median"));
      compare(multipath::Mover::kNative, record, record.at("native_gbps").at("median"));
    }
}

}  // namespace
}  // namespace braid::test
