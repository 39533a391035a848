// GPUs whose compute mode keeps them for one process, or for nobody (`nvidia-smi -c`), on the
// emulated server: braid makes no context there, and says why.
#include <gtest/gtest.h>

#include <set>

#include "tests/preload/programs.h"

namespace braid::test {
namespace {

constexpr const char* kExclusive = "3";  // CU_COMPUTEMODE_EXCLUSIVE_PROCESS
constexpr const char* kProhibited = "2";

ChildResult copy_with(const std::string& modes, const Words& options = {}) {
  return with_braid({kCopies, "dlsym", "few", "20000001"}, joined({"--threshold", "2M"}, options),
                    {{"EMULATED_COMPUTE_MODES", modes}});
}

nlohmann::json statistics_of(const ChildResult& child) {
  EXPECT_EQ(child.exit_code, 0) << child.errors;
  const auto all = child.statistics();
  return all.size() == 1 ? all[0] : nlohmann::json{{"paths", {}}, {"relays", {}}};
}

std::set<int> links_of_gpu_0(const nlohmann::json& statistics) {
  std::set<int> links;
  for (const auto& path : statistics.at("paths"))
    if (path.at("target") == 0 && path.at("bytes") != 0) links.insert(path.at("via").get<int>());
  return links;
}

std::set<int> open_relays(const nlohmann::json& statistics) {
  std::set<int> relays;
  for (const auto& relay : statistics.at("relays")) relays.insert(relay.at("gpu").get<int>());
  return relays;
}

TEST(ComputeModes, GpusThatAreKeptForOthersDoNotRelay) {
  for (const char* mode : {kExclusive, kProhibited}) {
    const ChildResult child = copy_with(std::string("0,") + mode);
    const auto statistics = statistics_of(child);
    EXPECT_FALSE(open_relays(statistics).contains(1)) << statistics;
    EXPECT_FALSE(links_of_gpu_0(statistics).contains(1)) << statistics;
    EXPECT_GE(links_of_gpu_0(statistics).size(), 4u) << "the others do: " << statistics;
    const std::string name = mode == kExclusive ? "exclusive-process" : "prohibited";
    EXPECT_NE(child.errors.find("braid: GPU 1 is in " + name + " mode, and so does not relay"),
              std::string::npos)
        << child.errors;
  }
}

TEST(ComputeModes, WhereAllAreKeptEveryCopyIsNative) {
  const ChildResult child = copy_with("0,3,3,3,2,3,3,3");
  const auto statistics = statistics_of(child);
  EXPECT_EQ(open_relays(statistics), std::set<int>{0}) << "for the others: " << statistics;
  EXPECT_GT(counted(statistics, "cuMemcpyHtoDAsync_v2", "no_relay").calls, 0u) << statistics;
  EXPECT_EQ(counted(statistics, "cuMemcpyHtoDAsync_v2", "accelerated").calls, 0u) << statistics;
  EXPECT_NE(child.errors.find("GPU 3 is in exclusive-process mode, GPU 4 is in prohibited mode"),
            std::string::npos)
      << child.errors;
}

// The user knows: they are left out anyway.
TEST(ComputeModes, OfGpusThatTheUserLeavesOutNothingIsSaid) {
  const ChildResult child = copy_with("0,3", {"--relays", "2,3"});
  EXPECT_EQ(child.other_errors(), "");
  EXPECT_EQ(open_relays(statistics_of(child)), (std::set<int>{2, 3}));
}

}  // namespace
}  // namespace braid::test
