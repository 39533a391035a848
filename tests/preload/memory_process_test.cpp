// Programs whose memory is not every GPU's: relays are let in, and the program does not notice.
#include <gtest/gtest.h>

#include "tests/preload/programs.h"

namespace braid::test {
namespace {

const std::string kMemory = BRAID_TEST_CLIENTS "/client_memory";

void expect_native_answers_and_all_accelerated(const std::string& scenario, uint64_t copies) {
  const ChildResult native = natively({kMemory, scenario});
  const ChildResult braided = with_braid({kMemory, scenario});
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

TEST(Memory, WithoutRelaysNothingIsGranted) {
  const ChildResult native = natively({kMemory, "mapped"});
  const ChildResult braided = with_braid({kMemory, "mapped"}, {"--relays", "none"});
  EXPECT_EQ(braided.output, native.output);
  EXPECT_EQ(only_statistics(braided)["entry_points"]["cuMemcpyHtoDAsync_v2"]["no_relay"]["calls"],
            3u);
}

}  // namespace
}  // namespace braid::test
