// Programs whose memory is not every GPU's: relays are let in, and the program does not notice.
#include <gtest/gtest.h>

#include "tests/preload/programs.h"

namespace braid::test {
namespace {

const std::string kMemory = BRAID_TEST_CLIENTS "/client_memory";

void expect_native_answers_and_all_accelerated(const std::string& scenario, uint64_t copies,
                                               const Environment& environment = {}) {
  const ChildResult native = natively({kMemory, scenario}, environment);
  const ChildResult braided = with_braid({kMemory, scenario}, {}, environment);
  ASSERT_EQ(native.exit_code, 0) << native.errors;
  EXPECT_EQ(braided.output, native.output);
  const auto statistics = only_statistics(braided);
  EXPECT_EQ(statistics["entry_points"]["cuMemcpyHtoDAsync_v2"]["accelerated"]["calls"], copies)
      << statistics;
}

TEST(Memory, MappedRangesAreAcceleratedAndTheirAccessReadsAsNatively) {
  expect_native_answers_and_all_accelerated("mapped", 3);
}

TEST(Memory, WhatTheDriverDoesNotUnmapKeepsItsAccess) {
  expect_native_answers_and_all_accelerated("refused_unmaps", 2);
}

TEST(Memory, PoolsAreAcceleratedAndTheirAccessReadsAsNatively) {
  expect_native_answers_and_all_accelerated("pools", 6);
}

// Access to other memory can be asked for, and other memory freed, while a call that sets access is
// in a driver that makes it wait: native calls of that kind share no lock.
TEST(Memory, WhoSetsAccessDelaysNobodyWithOtherMemory) {
  const Environment waiting_driver = {{"EMULATED_SETTING_ACCESS_WAITS", "1"}};
  expect_native_answers_and_all_accelerated("a_range_waits", 1, waiting_driver);
  expect_native_answers_and_all_accelerated("a_pool_waits", 1, waiting_driver);
}

TEST(Memory, WithoutRelaysNothingIsGranted) {
  const ChildResult native = natively({kMemory, "mapped"});
  const ChildResult braided = with_braid({kMemory, "mapped"}, {"--relays", "none"});
  EXPECT_EQ(braided.output, native.output);
  EXPECT_EQ(only_statistics(braided)["entry_points"]["cuMemcpyHtoDAsync_v2"]["no_relay"]["calls"],
            3u);
}

}  // namespace
}  // namespace braid::test
