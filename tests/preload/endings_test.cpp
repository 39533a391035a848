// What ends in a program while other things go on: threads, contexts, processes.
#include <gtest/gtest.h>

#include "tests/preload/programs.h"

namespace braid::test {
namespace {

const std::string kEndings = BRAID_TEST_CLIENTS "/client_endings";

TEST(Endings, AThreadMayCopyAsItEnds) {
  const ChildResult native = natively({kEndings, "a_thread"});
  ASSERT_EQ(native.exit_code, 0) << native.errors;
  const auto statistics = only_statistics(with_braid({kEndings, "a_thread"}));
  EXPECT_EQ(counted(statistics, "cuMemcpyBatchAsync", "accelerated").calls, 2u) << statistics;
  EXPECT_EQ(counted(statistics, "cuMemcpyBatchAsync", "not_ready").calls, 1u) << statistics;
}

TEST(Endings, AContextThatWaitsForItsStreamsHoldsUpNoOtherGpu) {
  const ChildResult native = natively({kEndings, "a_context"});
  ASSERT_EQ(native.exit_code, 0) << native.errors;
  const auto statistics = only_statistics(with_braid({kEndings, "a_context"}));
  EXPECT_EQ(counted(statistics, "cuMemcpyBatchAsync", "accelerated").calls, 3u) << statistics;
}

// The context is known again after the next retaining, but without kernels: to load them would wait
// for the stream.
TEST(Endings, NeitherAReleaseNorTheNextRetainWaitsForAStreamOfWhoRetainsMeanwhile) {
  const ChildResult native = natively({kEndings, "a_hold"});
  ASSERT_EQ(native.exit_code, 0) << native.errors;
  const auto statistics = only_statistics(with_braid({kEndings, "a_hold"}));
  EXPECT_EQ(counted(statistics, "cuMemcpyBatchAsync", "accelerated").calls, 1u) << statistics;
}

TEST(Endings, ARefusalToDestroyAContextWaitsForNoStream) {
  const ChildResult native = natively({kEndings, "a_refusal"});
  ASSERT_EQ(native.exit_code, 0) << native.errors;
  const auto statistics = only_statistics(with_braid({kEndings, "a_refusal"}));
  EXPECT_EQ(counted(statistics, "cuMemcpyBatchAsync", "accelerated").calls, 2u) << statistics;
}

ChildResult staged(const std::string& scenario) {
  return with_braid({kEndings, scenario}, {"--pageable", "2"});
}

TEST(Endings, ADetachmentWaitsForNoStream) {
  const ChildResult native = natively({kEndings, "a_detachment"});
  ASSERT_EQ(native.exit_code, 0) << native.errors;
  const auto statistics = only_statistics(staged("a_detachment"));
  EXPECT_EQ(counted(statistics, "cuMemcpyHtoD_v2", "staged").calls, 2u) << statistics;
}

// Its frames and those of the threads that help it stay whole.
TEST(Endings, AThreadThatIsCancelledEndsAfterItsCopy) {
  const auto statistics = only_statistics(staged("a_cancellation"));
  EXPECT_GE(counted(statistics, "cuMemcpyHtoD_v2", "staged").calls, 12u) << statistics;
}

TEST(Endings, ContextsThatGoLeaveNoMemory) {
  const auto statistics = only_statistics(staged("many_contexts"));
  EXPECT_EQ(counted(statistics, "cuMemcpyHtoD_v2", "staged").calls, 9u) << statistics;
}

}  // namespace
}  // namespace braid::test
