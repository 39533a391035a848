// Relays open in the background: the program goes on meanwhile, natively.
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <set>
#include <sstream>

#include "programs.h"

namespace braid::test {
namespace {

constexpr const char* kCopy = "cuMemcpyHtoDAsync_v2";

// Two contexts for two relays, half a second each if nothing else is said.
class Opening : public ::testing::Test {
 protected:
  Opening()
      : log_(std::filesystem::temp_directory_path() /
             ("braid-opening-" + std::to_string(getpid()) + ".log")) {}
  ~Opening() override { std::filesystem::remove(log_); }

  ChildResult run(const std::string& scenario, Environment environment = {},
                  const std::string& relays = "1,2") const {
    environment.insert(
        {{"BRAID_FAULTS", R"({"contexts_take_ms": 500})"}, {"BRAID_LOG", log_.string()}});
    return by_default({BRAID_TEST_CLIENTS "/client_opening", scenario, log_}, {"--relays", relays},
                      environment);
  }

  // The copies before were native, and the one that ended the program took every path. On a busy
  // machine the first copy may come when relays are open.
  void expect_carried_at_the_end(const std::string& scenario) const {
    const auto are_native = [](const auto& statistics) {
      return counted(statistics, kCopy, "not_ready").calls > 0;
    };
    auto statistics = only_statistics(run(scenario));
    for (int again = 0; again < 5 && !are_native(statistics); ++again)
      statistics = only_statistics(run(scenario));
    EXPECT_TRUE(are_native(statistics)) << statistics;
    EXPECT_GE(counted(statistics, kCopy, "accelerated").calls, 1u) << statistics;
    const auto& paths = statistics.at("paths");
    EXPECT_EQ(std::count_if(paths.begin(), paths.end(),
                            [](const auto& path) { return path.at("target") == 0; }),
              3)
        << statistics;
  }

  std::filesystem::path log_;
};

TEST_F(Opening, CopiesAreNativeUntilRelaysAreOpen) { expect_carried_at_the_end("goes_on"); }

TEST_F(Opening, AnotherGpusRelaysOpenWhenItsCopiesCome) {
  const auto statistics = only_statistics(run("another_gpu", {}, "0,1,2"));
  const auto& relays = statistics.at("relays");
  EXPECT_EQ(relays.size(), 3u) << statistics;
  const auto& paths = statistics.at("paths");
  EXPECT_EQ(
      std::count_if(paths.begin(), paths.end(),
                    [](const auto& path) { return path.at("target") == 1 && path.at("via") == 0; }),
      1)
      << statistics;
}

TEST_F(Opening, WhenToldSoTheProgramWaits) {
  const auto statistics = only_statistics(run("goes_on", {{"BRAID_OPENING", "wait"}}));
  EXPECT_EQ(counted(statistics, kCopy, "not_ready").calls, 0u);
  EXPECT_EQ(counted(statistics, kCopy, "accelerated").calls, 1u);
}

TEST_F(Opening, AChildMayForkMeanwhile) { expect_carried_at_the_end("forks"); }

TEST_F(Opening, ContextsMadeMeanwhileBecomeTargets) { expect_carried_at_the_end("own_context"); }

TEST_F(Opening, ContextsMayBeResetMeanwhile) { expect_carried_at_the_end("resets"); }

TEST_F(Opening, MemoryMappedMeanwhileIsLentToRelays) { expect_carried_at_the_end("maps"); }

// It waits for the context that is being made, and not for the other six, of three seconds each.
TEST_F(Opening, AProcessMayEndMeanwhile) {
  const Environment slowly{{"BRAID_FAULTS", R"({"contexts_take_ms": 3000})"}};
  for (const char* scenario : {"ends", "ends_at_once", "ends_elsewhere"}) {
    const auto before = std::chrono::steady_clock::now();
    const ChildResult child = run(scenario, slowly, "all");
    EXPECT_EQ(child.exit_code, 3) << scenario << child.errors;
    EXPECT_EQ(child.other_errors(), "") << scenario;
    EXPECT_LT(std::chrono::steady_clock::now() - before, std::chrono::seconds(20)) << scenario;
  }
}

TEST_F(Opening, WhatCannotBeOpenedIsSaidOnce) {
  std::string calls;
  for (int nth = 1; nth < 9; ++nth)
    calls += (nth == 1 ? "" : ",") +
             (R"({"name": "cuCtxCreate_v2", "error": "CUDA_ERROR_OUT_OF_MEMORY", "nth": )" +
              std::to_string(nth) + "}");
  const std::string faults = R"({"contexts_take_ms": 20, "calls": [)" + calls + "]}";
  std::string said;
  for (int attempt = 0; attempt < 5 && said.find("stays native") == std::string::npos;
       ++attempt) {  // it may end before it is said
    const ChildResult child = by_default({kScenarios, "pageable_idle"},
                                         {"--relays", "1,2", "--pageable", "2", "--threshold", "1"},
                                         {{"BRAID_FAULTS", faults}});
    EXPECT_EQ(child.exit_code, 0) << child.errors;
    said = child.other_errors();
  }
  EXPECT_NE(said.find("opening GPU 1 as a relay"), std::string::npos) << said;
  EXPECT_NE(said.find("stays native"), std::string::npos) << said;
  std::set<std::string> different;
  std::istringstream lines(said);
  for (std::string line; std::getline(lines, line);)
    EXPECT_TRUE(different.insert(line).second) << line;
}

}  // namespace
}  // namespace braid::test
