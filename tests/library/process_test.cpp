// Whole programs that link libbraid: by themselves and under `braid run`, where the process has one
// engine. No setting but those that a test names: what a user gets.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/support/child.h"
#include "tests/support/own_folder.h"

namespace braid::test {
namespace {

struct Copied {
  double gbps = 0;
  std::string forecast;
  std::string reason;
};

struct Seen {
  ChildResult child;
  std::vector<Copied> copies;

  const Copied& last(size_t before = 0) const { return copies.at(copies.size() - 1 - before); }
};

Seen run(const std::vector<std::string>& words, const Environment& changes) {
  Seen seen{run_child(words, changes), {}};
  EXPECT_EQ(seen.child.exit_code, 0) << seen.child.output << seen.child.errors;
  EXPECT_NE(seen.child.output.find("verified"), std::string::npos);
  std::istringstream lines(seen.child.output);
  std::string way;
  for (Copied copied; lines >> way && way != "verified"; seen.copies.push_back(copied))
    lines >> copied.gbps >> copied.forecast >> copied.reason;
  return seen;
}

Seen run_alone(const std::vector<std::string>& arguments, Environment changes = {}) {
  std::vector<std::string> words{BRAID_LIBRARY_CLIENT};
  words.insert(words.end(), arguments.begin(), arguments.end());
  changes["LD_LIBRARY_PATH"] = BRAID_EMULATOR_FOLDER;
  changes["BRAID_SERVER"] = BRAID_PROFILES "/h20x8.json";
  return run(words, changes);
}

Seen run_under_braid(const std::vector<std::string>& options,
                     const std::vector<std::string>& arguments, Environment changes = {}) {
  std::vector<std::string> words{BRAID_COMMAND, "run", "--server", "h20x8"};
  words.insert(words.end(), options.begin(), options.end());
  words.insert(words.end(), {"--", BRAID_LIBRARY_CLIENT});
  words.insert(words.end(), arguments.begin(), arguments.end());
  return run(words, changes);
}

std::string read_file(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST(LibraryProcess, IsAsFastUnderBraidRunAndEachCopyIsCountedOnce) {
  const Seen alone = run_alone({"256", "pinned"});
  ASSERT_EQ(alone.copies.size(), 2u);
  using Options = std::vector<std::string>;
  for (const Options& opening : {Options{}, {"--opening", "wait"}, {"--opening", "background"}}) {
    Options options{"--stats", "json"};
    options.insert(options.end(), opening.begin(), opening.end());
    const Seen under = run_under_braid(options, {"256", "pinned"});
    const size_t ready = under.copies.size() - 2;  // with `background` some come before
    for (const size_t at : {size_t{0}, size_t{1}}) {
      EXPECT_EQ(under.copies.at(ready + at).reason, "accelerated");
      EXPECT_GE(under.copies.at(ready + at).gbps, 0.98 * alone.copies.at(at).gbps);
    }
    const auto reports = under.child.statistics();
    ASSERT_EQ(reports.size(), 1u) << under.child.errors;
    const auto& points = reports[0].at("entry_points");
    EXPECT_EQ(points.size(), 1u) << points;
    EXPECT_EQ(counted(reports[0], "braid_copy", "accelerated"), (Counted{2, 512 << 20})) << points;
    EXPECT_EQ(path_bytes(reports[0]), uint64_t{512} << 20);
  }
}

TEST(LibraryProcess, StatisticsAndLogNeedNoInterposer) {
  const OwnFolder folder;
  const std::string log = folder.file("log");
  const Seen alone = run_alone({"64", "pinned"}, {{"BRAID_STATS", "json"}, {"BRAID_LOG", log}});
  const auto reports = alone.child.statistics();
  ASSERT_EQ(reports.size(), 1u) << alone.child.errors;
  EXPECT_EQ(counted(reports[0], "braid_copy", "accelerated"), (Counted{2, 128 << 20}));
  EXPECT_EQ(path_bytes(reports[0]), uint64_t{128} << 20);
  const std::string lines = read_file(log);
  EXPECT_EQ(std::count(lines.begin(), lines.end(), '\n'), 2) << lines;
  EXPECT_NE(lines.find("entry_point=braid_copy bytes=67108864 direction=h2d gpu=0"),
            std::string::npos)
      << lines;
  EXPECT_NE(lines.find("outcome=accelerated mover=copy_engine"), std::string::npos) << lines;
}

TEST(LibraryProcess, TextSaysInItsFirstLineWhatHappened) {
  const Seen alone = run_alone({"64", "pinned"}, {{"BRAID_STATS", "text"}});
  EXPECT_NE(alone.child.errors.find("2 of 2 copies of 134.2 MB were carried by braid"),
            std::string::npos)
      << alone.child.errors;
}

TEST(LibraryProcess, ALogThatCannotBeWrittenIsAnError) {
  const ChildResult child = run_child({BRAID_LIBRARY_CLIENT, "64", "pinned"},
                                      {{"LD_LIBRARY_PATH", BRAID_EMULATOR_FOLDER},
                                       {"BRAID_SERVER", BRAID_PROFILES "/h20x8.json"},
                                       {"BRAID_LOG", "/no/such/folder/log"}});
  EXPECT_EQ(child.exit_code, 1);
  EXPECT_NE(child.errors.find("BRAID_LOG: '/no/such/folder/log'"), std::string::npos)
      << child.errors;
}

TEST(LibraryProcess, PageableMemoryIsStagedAloneAndUnderBraidRun) {
  for (const Seen& seen : {run_alone({"64", "pageable"}, {{"BRAID_PAGEABLE", "2"}}),
                           run_under_braid({"--pageable", "2"}, {"64", "pageable"})})
    for (const Copied& copied : seen.copies) {
      EXPECT_EQ(copied.reason, "staged");
      EXPECT_EQ(copied.forecast, "staged");
    }
}

TEST(LibraryProcess, OneHardwareQueueIsNoError) {
  const Seen alone = run_alone({"64", "pinned"}, {{"CUDA_DEVICE_MAX_CONNECTIONS", "1"}});
  for (const Copied& copied : alone.copies) EXPECT_EQ(copied.reason, "accelerated");
}

TEST(LibraryProcess, RelaysOpenInTheBackgroundWhereTheProgramAsksForIt) {
  const Environment slowly{{"BRAID_FAULTS", R"({"contexts_take_ms": 500})"}};
  for (const Seen& seen : {run_alone({"64", "pinned", "background"}, slowly),
                           run_under_braid({}, {"64", "pinned", "background"}, slowly)}) {
    EXPECT_EQ(seen.copies.front().forecast, "not_ready");
    EXPECT_EQ(seen.copies.front().reason, "not_ready");
    EXPECT_EQ(seen.last(1).reason, "accelerated");
    EXPECT_EQ(seen.last().forecast, "accelerated");
  }
}

}  // namespace
}  // namespace braid::test
