// A station that is opened ahead: TCP, which has descriptors for each.
#include "fabric/ofi/spare_station.h"

#include <gtest/gtest.h>

#include "support/eventually.h"
#include "support/no_more_files.h"

namespace braid::fabric::ofi {
namespace {

class SpareStationTest : public testing::Test {
 protected:
  void SetUp() override { ASSERT_TRUE(provider_.ok()) << provider_.status().message(); }

  const Result<Provider> provider_ = Provider::open(tcp_quirks(), "127.0.0.1");
};

TEST_F(SpareStationTest, IsThereWhenNoneCanBeOpened) {
  SpareStation spare(provider_.value());
  const Result<Station> first = spare.take();
  ASSERT_TRUE(first.ok()) << first.status().message();
  ASSERT_TRUE(test::eventually([&] { return spare.is_ready(); }));
  {
    const test::NoMoreFiles limit;
    const Result<Station> second = spare.take();
    ASSERT_TRUE(second.ok()) << second.status().message();
    EXPECT_NE(second.value().name, first.value().name);
    ASSERT_TRUE(test::eventually([&] { return spare.is_ready(); })) << "the next one has failed";
    EXPECT_FALSE(spare.take().ok());
  }
  EXPECT_TRUE(spare.take().ok()) << "it is tried again";
}

TEST_F(SpareStationTest, MayEndWhileItIsOpened) {
  for (int turn = 0; turn < 20; ++turn) {
    SpareStation spare(provider_.value());
    EXPECT_TRUE(spare.take().ok());
  }
}

}  // namespace
}  // namespace braid::fabric::ofi
