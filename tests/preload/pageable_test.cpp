// Programs that never pin memory, natively and under `braid run`, on the emulated server: what they
// see is the same, and braid carries it.
#include <gtest/gtest.h>

#include "tests/preload/programs.h"

namespace braid::test {
namespace {

ChildResult staged(const Words& program, const Environment& environment = {}) {
  return with_braid(program, {"--pageable", "3"}, environment);
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
  const auto statistics = only_statistics(staged(kEveryEntryPoint));
  expect_every_entry_point_staged(statistics);
  EXPECT_GT(statistics.at("paths").size(), 2u) << "only the target's own link was used";
}

TEST(Pageable, TheLogSaysWhatCarriedTheChunks) {
  const Environment log{{"BRAID_LOG", "stderr"}};
  for (const char* mover : {"kernel", "copy-engine"}) {
    const ChildResult child =
        with_braid({kScenarios, "pageable_exit"},
                   {"--pageable", "3", "--mover", mover, "--threshold", "1M"}, log);
    const std::string name = mover == std::string("kernel") ? "kernel" : "copy_engine";
    EXPECT_NE(child.errors.find("outcome=staged mover=" + name + " via=0,"), std::string::npos)
        << child.errors;
  }
  const ChildResult alone = staged({kScenarios, "pageable_exit"},
                                   {{"BRAID_LOG", "stderr"}, {"CUDA_VISIBLE_DEVICES", "0"}});
  EXPECT_NE(alone.errors.find("outcome=staged mover=native cost_ns="), std::string::npos)
      << alone.errors;
}

TEST(Pageable, OneGpuAloneStagesToo) {
  const auto statistics =
      only_statistics(staged(kEveryEntryPoint, {{"CUDA_VISIBLE_DEVICES", "0"}}));
  expect_every_entry_point_staged(statistics);
  EXPECT_EQ(path_bytes(statistics), 0u);
}

TEST(Pageable, AForkedChildIsHarmless) {
  EXPECT_EQ(staged_calls(only_statistics(staged({kScenarios, "pageable_fork"}))), 4u);
}

TEST(Pageable, ThreadsMayRaceOnFirstUse) {
  const auto statistics = only_statistics(staged({kScenarios, "pageable_threads"}));
  EXPECT_GT(staged_calls(statistics), 0u) << statistics;
}

TEST(Pageable, ContextsMayComeAndGo) {
  EXPECT_EQ(staged_calls(only_statistics(staged({kScenarios, "pageable_contexts"}))), 6u);
}

TEST(Pageable, ContextsMayComeAndGoOnOneGpu) {
  const auto child = staged({kScenarios, "pageable_contexts"}, {{"CUDA_VISIBLE_DEVICES", "0"}});
  EXPECT_EQ(staged_calls(only_statistics(child)), 6u);
}

TEST(Pageable, ExitsCleanlyWithBytesOnTheirWay) {
  const auto statistics = only_statistics(staged({kScenarios, "pageable_exit"}));
  EXPECT_EQ(counted(statistics, "cuMemcpyHtoDAsync_v2", "staged"),
            (Counted{10, 10 * kScenarioBytes}));
}

TEST(Pageable, AnIdleProcessSpendsNoTime) {
  const ChildResult child = staged({kScenarios, "pageable_idle"});
  EXPECT_EQ(staged_calls(only_statistics(child)), 2u);
  // One may be the process's own end of sleep.
  EXPECT_TRUE(child.output == "0\n" || child.output == "1\n") << child.output;
}

}  // namespace
}  // namespace braid::test
