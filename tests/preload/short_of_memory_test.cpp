// The program wants memory that a relay holds.
#include "programs.h"

namespace braid::test {
namespace {

constexpr const char* kClient = BRAID_TEST_CLIENTS "/client_short_of_memory";

TEST(ShortOfMemory, NativelyThereIsNoMore) {
  EXPECT_EQ(natively({kClient, "33554432"}).output, "2\n");
}

TEST(ShortOfMemory, AnIdleRelayGivesItsBuffersBack) {
  const ChildResult child = with_braid({kClient, "33554432"}, {"--relays", "1,2"});
  EXPECT_EQ(child.output, "0\n");
  const auto statistics = only_statistics(child);
  EXPECT_EQ(counted(statistics, "cuMemcpyHtoD_v2", "accelerated").calls, 1u) << statistics;
  ASSERT_EQ(statistics.at("relays").size(), 2u);
  EXPECT_EQ(statistics.at("relays")[0].at("state"), "without_buffers");
  EXPECT_EQ(statistics.at("relays")[1].at("state"), "open");
}

TEST(ShortOfMemory, MoreThanThatIsTheDriversAnswer) {
  const ChildResult child = with_braid({kClient, "1073741824"}, {"--relays", "1,2"});
  EXPECT_EQ(child.output, "2\n");
  EXPECT_EQ(child.exit_code, 0);
}

}  // namespace
}  // namespace braid::test
