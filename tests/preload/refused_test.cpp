// What the driver refuses stays refused under braid, and moves no byte.
#include <gtest/gtest.h>

#include "tests/preload/programs.h"

namespace braid::test {
namespace {

const std::string kRefused = BRAID_TEST_CLIENTS "/client_refused";

// The client looks at every byte. Copies whose numbers are right are carried by braid.
void expect_native_answers(const std::string& shape, const std::string& symbol,
                           uint64_t carried_calls) {
  const ChildResult native = natively({kRefused, shape});
  ASSERT_EQ(native.exit_code, 0) << native.errors;
  const ChildResult braided = with_braid({kRefused, shape});
  EXPECT_EQ(braided.output, native.output);
  EXPECT_EQ(counted(only_statistics(braided), symbol, "accelerated").calls, carried_calls);
}

TEST(Refused, RowsWithNumbersThatNoCopyCanHave) {
  expect_native_answers("rows", "cuMemcpy2DAsync_v2", 2);
}

TEST(Refused, LayersWithNumbersThatNoCopyCanHave) {
  expect_native_answers("layers", "cuMemcpy3DAsync_v2", 3);
}

TEST(Refused, BoxesWithNumbersThatNoCopyCanHave) {
  expect_native_answers("boxes", "cuMemcpy3DBatchAsync_v2", 1);
}

}  // namespace
}  // namespace braid::test
