// How long something that was found in the way is left alone.
#include "multipath/backoff.h"

#include <gtest/gtest.h>

namespace braid::multipath {
namespace {

constexpr uint64_t kLong = 1'000'000'000'000;

class BackoffTest : public ::testing::Test {
 protected:
  // How long it lasts when it is found now. Then that has passed.
  uint64_t found_ns() {
    backoff_.start(now_ns_);
    const uint64_t before_ns = now_ns_;
    while (backoff_.is_active(now_ns_)) now_ns_ += Backoff::kFirstNs / 2;
    return now_ns_ - before_ns;
  }
  Backoff backoff_;
  uint64_t now_ns_ = kLong;
};

TEST_F(BackoffTest, IsOffAtFirst) { EXPECT_FALSE(backoff_.is_active(now_ns_)); }

TEST_F(BackoffTest, LastsTwiceAsLongEachTimeUpToALimit) {
  for (uint64_t length_ns = Backoff::kFirstNs; length_ns < Backoff::kMostNs; length_ns *= 2)
    EXPECT_EQ(found_ns(), length_ns);
  EXPECT_EQ(found_ns(), Backoff::kMostNs);
  EXPECT_EQ(found_ns(), Backoff::kMostNs);
}

TEST_F(BackoffTest, IsNewAfterALongTime) {
  (void)found_ns();
  (void)found_ns();
  now_ns_ += kLong;
  EXPECT_EQ(found_ns(), Backoff::kFirstNs);
}

TEST_F(BackoffTest, GoesOnAsLongWhenFoundMeanwhile) {
  backoff_.start(now_ns_);
  for (int i = 0; i < 10; ++i) {
    now_ns_ += Backoff::kFirstNs / 2;
    backoff_.start(now_ns_);
  }
  EXPECT_TRUE(backoff_.is_active(now_ns_ + Backoff::kFirstNs - 1));
  EXPECT_FALSE(backoff_.is_active(now_ns_ + Backoff::kFirstNs));
}

}  // namespace
}  // namespace braid::multipath
