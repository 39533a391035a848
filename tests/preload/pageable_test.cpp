// Programs that never pin memory, natively and under `braid run`, on the emulated server: what they
// see is the same, and braid carries it.
#include <gtest/gtest.h>

#include "tests/support/child.h"

namespace braid::test {
namespace {

using Words = std::vector<std::string>;

const std::string kCopies = BRAID_TEST_CLIENTS "/client_copies";
const std::string kScenarios = BRAID_TEST_CLIENTS "/client_scenarios";

constexpr uint64_t kScenarioBytes = (uint64_t{6} << 20) + 77;

ChildResult with_braid(const Words& program, const Environment& environment = {}) {
  Words words{BRAID_COMMAND, "run",        "--server", "h20x8", "--stats",
              "json",        "--pageable", "3",        "--"};
  words.insert(words.end(), program.begin(), program.end());
  return run_child(words, environment);
}

// The one line of statistics of a program that ended well and said nothing else.
nlohmann::json only_statistics(const ChildResult& child) {
  EXPECT_EQ(child.exit_code, 0) << child.errors;
  EXPECT_EQ(child.other_errors(), "");
  const auto all = child.statistics();
  EXPECT_EQ(all.size(), 1u) << child.errors;
  return all.size() == 1 ? all[0] : nlohmann::json{{"entry_points", {}}, {"paths", {}}};
}

uint64_t staged_calls(const nlohmann::json& statistics) {
  return counted(statistics, "cuMemcpyHtoDAsync_v2", "staged").calls +
         counted(statistics, "cuMemcpyDtoHAsync_v2", "staged").calls;
}

// Just below and at the threshold of staging, and so large that a ring is used twice over.
const Words kEveryEntryPoint = {kCopies, "dlsym", "pageable", "1048575", "1048576", "41000001"};

void expect_every_entry_point_staged(const nlohmann::json& statistics) {
  const Counted once{2 * 3, 3 * (1048576 + 41000001)};
  for (const char* symbol :
       {"cuMemcpyHtoDAsync_v2", "cuMemcpyDtoHAsync_v2", "cuMemcpyHtoD_v2", "cuMemcpyDtoH_v2",
        "cuMemcpyHtoDAsync_v2_ptsz", "cuMemcpyDtoHAsync_v2_ptsz", "cuMemcpyHtoD_v2_ptds",
        "cuMemcpyDtoH_v2_ptds"})
    EXPECT_EQ(counted(statistics, symbol, "staged"), once) << symbol << statistics;
  for (const char* symbol : {"cuMemcpy", "cuMemcpyAsync", "cuMemcpy_ptds", "cuMemcpyAsync_ptsz"})
    EXPECT_EQ(counted(statistics, symbol, "staged"), (Counted{2 * once.calls, 2 * once.bytes}))
        << symbol << statistics;
}

TEST(Pageable, EveryEntryPointIsStagedAndRight) {
  const auto statistics = only_statistics(with_braid(kEveryEntryPoint));
  expect_every_entry_point_staged(statistics);
  EXPECT_GT(statistics.at("paths").size(), 2u) << "only the target's own link was used";
}

TEST(Pageable, OneGpuAloneStagesToo) {
  const auto statistics =
      only_statistics(with_braid(kEveryEntryPoint, {{"CUDA_VISIBLE_DEVICES", "0"}}));
  expect_every_entry_point_staged(statistics);
  EXPECT_EQ(path_bytes(statistics), 0u);
}

TEST(Pageable, AForkedChildIsHarmless) {
  EXPECT_EQ(staged_calls(only_statistics(with_braid({kScenarios, "pageable_fork"}))), 4u);
}

TEST(Pageable, ThreadsMayRaceOnFirstUse) {
  const auto statistics = only_statistics(with_braid({kScenarios, "pageable_threads"}));
  EXPECT_GT(staged_calls(statistics), 0u) << statistics;
}

TEST(Pageable, ContextsMayComeAndGo) {
  EXPECT_EQ(staged_calls(only_statistics(with_braid({kScenarios, "pageable_contexts"}))), 6u);
}

TEST(Pageable, ContextsMayComeAndGoOnOneGpu) {
  const auto child = with_braid({kScenarios, "pageable_contexts"}, {{"CUDA_VISIBLE_DEVICES", "0"}});
  EXPECT_EQ(staged_calls(only_statistics(child)), 6u);
}

TEST(Pageable, ExitsCleanlyWithBytesOnTheirWay) {
  const auto statistics = only_statistics(with_braid({kScenarios, "pageable_exit"}));
  EXPECT_EQ(counted(statistics, "cuMemcpyHtoDAsync_v2", "staged"),
            (Counted{10, 10 * kScenarioBytes}));
}

TEST(Pageable, AnIdleProcessSpendsNoTime) {
  const ChildResult child = with_braid({kScenarios, "pageable_idle"});
  EXPECT_EQ(staged_calls(only_statistics(child)), 2u);
  // In ticks of 10 ms; one may be the end of the copies before.
  EXPECT_TRUE(child.output == "0\n" || child.output == "1\n") << child.output;
}

}  // namespace
}  // namespace braid::test
