// How contexts end, natively and under braid: the program sees the same answers, and its copies go
// on being accelerated over every path.
#include <gtest/gtest.h>

#include "tests/preload/programs.h"

namespace braid::test {
namespace {

const std::string kPrimaries = BRAID_TEST_CLIENTS "/client_primaries";
const std::string kPrimariesLinked = BRAID_TEST_CLIENTS "/client_primaries_linked";

// Of the server's eight GPUs, the most that took part in one direction.
size_t links_of_target(const nlohmann::json& statistics, int target) {
  size_t links = 0;
  for (const auto& path : statistics.at("paths"))
    if (path.at("target") == target && path.at("direction") == "h2d") ++links;
  return links;
}

class Primaries : public ::testing::TestWithParam<const char*> {};

TEST_P(Primaries, EndAsNatively) {
  const ChildResult native = natively({kPrimaries, GetParam()});
  const ChildResult braided =
      with_braid({kPrimaries, GetParam()}, {"--threshold", "1M", "--pageable", "2"});
  ASSERT_EQ(native.exit_code, 0) << native.errors;
  EXPECT_EQ(braided.output, native.output);
  const auto statistics = only_statistics(braided);
  EXPECT_EQ(statistics["entry_points"]["cuMemcpyHtoD_v2"].size(), 1u)
      << "some copies were native: " << statistics;
}

INSTANTIATE_TEST_SUITE_P(Process, Primaries,
                         ::testing::Values("release_ends_the_context", "every_hold_counts",
                                           "reset_and_release", "release_after_pageable",
                                           "refused_detaching_counts_nothing",
                                           "release_beside_the_first_pinning"),
                         [](const auto& scenario) { return std::string(scenario.param); });

class PrimariesByLookup : public ::testing::TestWithParam<const char*> {};

TEST_P(PrimariesByLookup, EndAsNatively) {
  const bool is_linked = GetParam() == std::string("linked");
  const std::string client = is_linked ? kPrimariesLinked : kPrimaries;
  for (const char* scenario : {"every_hold_counts", "detach_ends_the_context"}) {
    const ChildResult native = natively({client, scenario, GetParam()});
    const ChildResult braided = with_braid({client, scenario, GetParam()});
    ASSERT_EQ(native.exit_code, 0) << native.errors;
    EXPECT_EQ(braided.output, native.output);
  }
}

INSTANTIATE_TEST_SUITE_P(Process, PrimariesByLookup,
                         ::testing::Values("dlsym_old", "default", "proc", "proc_v1", "linked"),
                         [](const auto& way) { return std::string(way.param); });

// GPU 1's context ends, and relays for GPU 0 again once memory is pinned.
TEST(EndedContexts, RelayAgain) {
  const ChildResult braided =
      with_braid({kPrimaries, "every_hold_counts"}, {"--threshold", "1M", "--relays", "1"});
  const auto statistics = only_statistics(braided);
  EXPECT_EQ(links_of_target(statistics, 0), 2u) << statistics;
}

}  // namespace
}  // namespace braid::test
