// What a user sees of braid: statistics at every kind of end, on a signal and in files, and the
// log.
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "tests/preload/programs.h"

namespace braid::test {
namespace {

namespace fs = std::filesystem;

class Observe : public ::testing::Test {
 protected:
  Observe() : folder_(fs::path(::testing::TempDir()) / ("observe_" + std::to_string(getpid()))) {
    fs::create_directories(folder_);
  }
  ~Observe() override { fs::remove_all(folder_); }

  static std::string text_of(const fs::path& file) {
    std::ostringstream text;
    text << std::ifstream(file).rdbuf();
    return text.str();
  }
  std::vector<fs::path> files() const {
    return {fs::directory_iterator(folder_), fs::directory_iterator()};
  }
  static ChildResult run(const Words& options, const Words& program) {
    return run_child(joined(joined({BRAID_COMMAND, "run", "--server", "h20x8"}, options),
                            joined({"--"}, program)),
                     waiting());
  }

  const fs::path folder_;
};

uint64_t accelerated(const nlohmann::json& statistics) {
  return counted(statistics, "cuMemcpyHtoDAsync_v2", "accelerated").calls;
}

TEST_F(Observe, ExitsWithoutHandlersShowStatisticsToo) {
  for (const char* scenario : {"underscore_exit", "capital_exit", "quick_exit"}) {
    const ChildResult child = with_braid({kScenarios, scenario});
    EXPECT_EQ(child.exit_code, 7) << scenario;
    const auto all = child.statistics();
    ASSERT_EQ(all.size(), 1u) << scenario << child.errors;
    EXPECT_EQ(accelerated(all[0]), 1u);
    EXPECT_EQ(path_bytes(all[0]), kScenarioBytes) << "the copy had ended";
  }
}

TEST_F(Observe, AChildOfVforkEndsWithoutAWord) {
  const auto statistics = only_statistics(with_braid({kScenarios, "vfork_exit"}));
  EXPECT_EQ(accelerated(statistics), 2u);
}

TEST_F(Observe, ExitCodesAreThoseOfProgramsWithoutCuda) {
  for (const char* how : {"_exit(5)", "abort()"}) {
    const Words program{"python3", "-c", std::string("import os; os.") + how};
    const ChildResult native = run_child(program);
    const ChildResult preloaded = run_child(program, {{"LD_PRELOAD", BRAID_PRELOAD_LIBRARY}});
    EXPECT_EQ(preloaded.exit_code, native.exit_code);
    EXPECT_EQ(preloaded.signal, native.signal);
    EXPECT_EQ(preloaded.errors, native.errors);
  }
}

TEST_F(Observe, ASignalShowsStatisticsWhileTheProgramGoesOn) {
  const auto all = with_braid({kScenarios, "signalled"}, {"--stats-signal", "USR2"}).statistics();
  ASSERT_EQ(all.size(), 3u) << "two signals and the end";
  EXPECT_EQ(accelerated(all[0]), 1u);
  EXPECT_EQ(path_bytes(all[0]), kScenarioBytes);
  EXPECT_EQ(accelerated(all[1]), 2u);
  EXPECT_EQ(accelerated(all[2]), 2u);
}

TEST_F(Observe, WithoutTheOptionTheSignalIsWhatItWas) {
  const ChildResult child = with_braid({kScenarios, "signalled"});
  EXPECT_EQ(child.signal, SIGUSR2);
  EXPECT_TRUE(child.statistics().empty()) << "a signal's end is not seen";
}

TEST_F(Observe, ASignalThatEndsTheProgramShowsStatisticsFirst) {
  const ChildResult child = with_braid({kScenarios, "interrupted"});
  EXPECT_EQ(child.signal, SIGINT) << "as natively";
  const auto all = child.statistics();
  ASSERT_EQ(all.size(), 1u) << child.errors;
  EXPECT_EQ(accelerated(all[0]), 1u);
}

TEST_F(Observe, AProgramThatHandlesItsEndReportsOnce) {
  const ChildResult child = with_braid({kScenarios, "terminated_with_handler"});
  EXPECT_EQ(child.exit_code, 9);
  EXPECT_EQ(child.statistics().size(), 1u) << child.errors;
}

TEST_F(Observe, AHandlerFromBeforeIsCalledAfterwards) {
  const ChildResult child =
      with_braid({kScenarios, "signalled_with_handler_before"}, {"--stats-signal", "USR2"});
  EXPECT_EQ(child.output, "handled\nhandled\n");
  EXPECT_EQ(child.statistics().size(), 3u) << child.errors;
}

TEST_F(Observe, AHandlerFromAfterwardsReplacesBraids) {
  const ChildResult child =
      with_braid({kScenarios, "signalled_with_handler_after"}, {"--stats-signal", "USR2"});
  EXPECT_EQ(child.output, "handled\nhandled\n");
  EXPECT_EQ(child.statistics().size(), 1u) << child.errors;
}

TEST_F(Observe, BeforeCudaIsLoadedTheSignalEndsNothing) {
  const ChildResult child = with_braid(
      {"sh", "-c", "kill -USR2 $$; exec " + kScenarios + " signalled"}, {"--stats-signal", "USR2"});
  EXPECT_EQ(child.signal, 0);
  EXPECT_EQ(child.exit_code, 0);
  EXPECT_EQ(child.statistics().size(), 3u) << child.errors;
}

TEST_F(Observe, AFileIsRewrittenAtTheInterval) {
  const ChildResult child =
      run({"--stats-file", folder_ / "s.json", "--stats", "json", "--stats-interval", "1"},
          {kScenarios, "killed_later", folder_ / "s.json"});
  EXPECT_EQ(child.signal, SIGKILL) << child.errors;
  const auto statistics = nlohmann::json::parse(text_of(folder_ / "s.json")).at("braid");
  EXPECT_EQ(accelerated(statistics), 2u) << "one copy came after the first report";
}

TEST_F(Observe, AnIntervalDelaysNoEndAndNoFork) {
  for (const char* scenario : {"copy_once", "fork_copying", "fork_first", "underscore_exit"}) {
    const ChildResult child = with_braid({kScenarios, scenario}, {"--stats-interval", "3600"});
    const ChildResult without = with_braid({kScenarios, scenario});
    EXPECT_EQ(child.exit_code, without.exit_code) << scenario;
    EXPECT_EQ(child.other_errors(), "") << scenario;
    EXPECT_EQ(child.statistics().size(), without.statistics().size()) << child.errors;
  }
}

TEST_F(Observe, SignalsInTheMiddleOfCopiesDoNoHarm) {
  const ChildResult child = with_braid({kScenarios, "signalled_while_copying"},
                                       {"--stats-signal", "USR2", "--threshold", "64K"});
  ASSERT_EQ(child.exit_code, 0) << child.errors;
  EXPECT_EQ(child.other_errors(), "");
  const auto all = child.statistics();
  ASSERT_GT(all.size(), 2u);
  uint64_t before = 0;
  for (const auto& statistics : all) {  // never fewer copies than before
    uint64_t calls = 0;
    for (const auto& [entry_point, outcomes] : statistics.at("entry_points").items())
      for (const auto& [outcome, count] : outcomes.items())
        calls += count.at("calls").get<uint64_t>();
    EXPECT_GE(calls, before);
    before = calls;
  }
}

TEST_F(Observe, EveryCallHasItsCostAndItsMover) {
  const auto statistics = only_statistics(with_braid({kScenarios, "copy_once"}));
  const auto& costs = statistics.at("cost_ns");
  EXPECT_EQ(costs.at("accelerated").at("calls"), 1);
  EXPECT_EQ(costs.at("passed_through").at("calls"),
            statistics.at("movers").at("native").at("calls"));
  for (const char* outcome : {"accelerated", "passed_through"}) {
    const auto& cost = costs.at(outcome);
    EXPECT_GT(cost.at("p50"), 0) << cost;
    EXPECT_LE(cost.at("p50"), cost.at("p90")) << cost;
    EXPECT_LE(cost.at("p90"), cost.at("p99")) << cost;
    EXPECT_LE(cost.at("p99"), cost.at("max")) << cost;
  }
  EXPECT_EQ(statistics.at("movers").at("copy_engine").at("bytes"), kScenarioBytes);
  for (const auto& path : statistics.at("paths")) EXPECT_EQ(path.at("mover"), "copy_engine");
}

TEST_F(Observe, AFileIsWrittenForEachProcessAndStderrIsQuiet) {
  const ChildResult child =
      run({"--stats-file", folder_ / "braid-%p.prom"},
          {"sh", "-c", kScenarios + " copy_once; " + kScenarios + " pageable"});
  EXPECT_EQ(child.exit_code, 0);
  EXPECT_EQ(child.errors, "");
  ASSERT_EQ(files().size(), 2u) << "no temporary file is left";
  for (const fs::path& file : files()) {
    const std::string number = file.stem().string().substr(6);
    const std::string text = text_of(file);
    EXPECT_TRUE(text.starts_with("# HELP ")) << text;
    EXPECT_NE(text.find("braid_copies_total{pid=\"" + number + "\""), std::string::npos) << text;
    EXPECT_NE(text.find("program=\"client_scenarios\""), std::string::npos) << text;
  }
}

TEST_F(Observe, AFileTakesTheFormatThatIsAskedFor) {
  run({"--stats-file", folder_ / "s.json", "--stats", "json", "--stats-signal", "USR2"},
      {kScenarios, "signalled"});
  const auto statistics = nlohmann::json::parse(text_of(folder_ / "s.json")).at("braid");
  EXPECT_EQ(accelerated(statistics), 2u) << "the last report replaced the others";
  EXPECT_EQ(files().size(), 1u);
}

// Whoever writes into the draft of another process, or removes it, makes an empty report of it.
TEST_F(Observe, ProcessesThatShareAFileHaveDraftsOfTheirOwn) {
  for (const char* draft : {"s.prom.new", "s.prom.1.new"})
    std::ofstream(folder_ / draft) << "another's";
  const ChildResult child = run({"--stats-file", folder_ / "s.prom"}, {kScenarios, "copy_once"});
  EXPECT_EQ(child.errors, "");
  EXPECT_TRUE(text_of(folder_ / "s.prom").starts_with("# HELP "));
  for (const char* draft : {"s.prom.new", "s.prom.1.new"})
    EXPECT_EQ(text_of(folder_ / draft), "another's") << draft;
  EXPECT_EQ(files().size(), 3u);
}

// Threads of Rust programs have such stacks.
TEST_F(Observe, AReportNeedsLittleOfASmallSignalStack) {
  const std::string client = BRAID_TEST_CLIENTS "/client_small_stack";
  for (const std::string format : {"text", "json", "prometheus"}) {
    const fs::path file = folder_ / format;
    const Words options{"--stats", format, "--stats-file", file, "--stats-signal", "USR2"};
    const ChildResult ended = run(options, {client, std::to_string(SIGTERM)});
    EXPECT_EQ(ended.signal, SIGTERM) << format << " " << ended.errors;
    EXPECT_NE(text_of(file).find("cuMemcpyHtoD_v2"), std::string::npos) << text_of(file);
    const ChildResult asked = run(options, {client, std::to_string(SIGUSR2)});
    EXPECT_EQ(asked.output, "it goes on\n") << format << " " << asked.signal << asked.errors;
  }
}

TEST_F(Observe, AFileThatCannotBeWrittenIsSaidOnce) {
  const std::string file = "BRAID_STATS_FILE=" + (folder_ / "none" / "s.prom").string();
  const ChildResult child = run({}, {"env", file, kScenarios, "copy_once"});
  EXPECT_EQ(child.exit_code, 0);
  EXPECT_TRUE(child.errors.starts_with("braid: BRAID_STATS_FILE: '")) << child.errors;
  EXPECT_NE(child.errors.find("No such file"), std::string::npos) << child.errors;
}

TEST_F(Observe, WhatIsNoRegularFileStaysWhatItIs) {
  const fs::path fifo = folder_ / "fifo";
  ASSERT_EQ(mkfifo(fifo.c_str(), 0600), 0);
  const ChildResult child =
      run({}, {"env", "BRAID_STATS_FILE=" + fifo.string(), kScenarios, "copy_once"});
  EXPECT_EQ(child.exit_code, 0);
  EXPECT_TRUE(child.errors.starts_with("braid: BRAID_STATS_FILE: '" + fifo.string() +
                                       "' is no regular file. Leave it out"))
      << child.errors;
  EXPECT_TRUE(fs::is_fifo(fifo));
  EXPECT_EQ(files().size(), 1u);
}

// Never /dev/stderr itself: root would replace it for the whole machine if this failed.
TEST_F(Observe, TheFileThatTakesStandardErrorIsNotReplaced) {
  const std::string log = (folder_ / "log").string();
  const std::string link = (folder_ / "stderr").string();
  fs::create_symlink("/proc/self/fd/2", link);
  const ChildResult child = run({}, {"sh", "-c",
                                     "echo kept >" + log + "; BRAID_STATS_FILE=" + link + " " +
                                         kScenarios + " copy_once 2>>" + log});
  EXPECT_EQ(child.exit_code, 0) << child.errors;
  EXPECT_TRUE(text_of(log).starts_with("kept\nbraid: BRAID_STATS_FILE: '" + link + "' is where"))
      << text_of(log);
  EXPECT_TRUE(fs::is_symlink(link));
}

TEST_F(Observe, ALinkLeadsToTheFileOfStatistics) {
  std::ofstream(folder_ / "s.prom") << "old";
  fs::create_symlink("s.prom", folder_ / "link");
  const ChildResult child = run({"--stats-file", folder_ / "link"}, {kScenarios, "copy_once"});
  EXPECT_EQ(child.errors, "");
  EXPECT_TRUE(fs::is_symlink(folder_ / "link"));
  EXPECT_TRUE(text_of(folder_ / "s.prom").starts_with("# HELP ")) << text_of(folder_ / "s.prom");
}

TEST_F(Observe, TheLogHasALineForEachLargeCopy) {
  const ChildResult child =
      run({"--log", "stderr"}, {"env", "BRAID_PAGEABLE=0", kScenarios, "pageable"});
  EXPECT_EQ(child.exit_code, 0);
  std::istringstream lines(child.errors);
  int count = 0;
  for (std::string line; std::getline(lines, line); ++count) {
    EXPECT_TRUE(line.starts_with("braid: copy pid=")) << line;
    for (const std::string& part :
         Words{" entry_point=cuMemcpyHtoD_v2", " bytes=" + std::to_string(kScenarioBytes),
               " direction=h2d", " gpu=0", " stream=legacy", " outcome=pageable", " mover=native"})
      EXPECT_NE(line.find(part), std::string::npos) << part << " in " << line;
  }
  EXPECT_EQ(count, 2);
}

TEST_F(Observe, TheLogMayBeAFileAndNamesThePaths) {
  const ChildResult child =
      run({"--log", folder_ / "copies-%p.log", "--relays", "2,5"}, {kScenarios, "fork_first"});
  EXPECT_EQ(child.exit_code, 0);
  EXPECT_EQ(child.errors, "");
  std::string lines;
  for (const fs::path& file : files()) lines += text_of(file);
  EXPECT_EQ(std::count(lines.begin(), lines.end(), '\n'), 1) << lines;
  for (const char* part : {" outcome=accelerated mover=copy_engine via=0,2,5 slice_bytes=",
                           " expected_us=native:", " available=3 cost_ns="})
    EXPECT_NE(lines.find(part), std::string::npos) << part << " in " << lines;
}

TEST_F(Observe, ALogThatCannotBeWrittenIsSaidOnce) {
  const std::string log = "BRAID_LOG=" + (folder_ / "none" / "log").string();
  const ChildResult child = run({}, {"env", log, kScenarios, "copy_once"});
  EXPECT_EQ(child.exit_code, 0);
  EXPECT_TRUE(child.errors.starts_with("braid: BRAID_LOG: '")) << child.errors;
}

}  // namespace
}  // namespace braid::test
