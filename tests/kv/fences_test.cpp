#include "kv/fences.h"

#include <gtest/gtest.h>

#include <set>
#include <vector>

namespace braid::kv {
namespace {

class FencesTest : public ::testing::Test {
 protected:
  bool poll() {
    return fences_.poll(
        [this](int event) {
          return event == failed_         ? EventState::kFailed
                 : ended_.contains(event) ? EventState::kPassed
                                          : EventState::kPending;
        },
        [this](int event) { retired_.push_back(event); });
  }

  Fences<int> fences_;
  std::set<int> ended_;
  std::vector<int> retired_;
  int failed_ = -1;
};

TEST_F(FencesTest, MarksPassInTheirOrder) {
  fences_.record(1, 10);
  fences_.record(2, 20);
  ended_ = {20};
  EXPECT_TRUE(poll());
  EXPECT_EQ(fences_.passed(), 0u) << "the first has not been seen to end";
  ended_ = {10, 20};
  EXPECT_TRUE(poll());
  EXPECT_EQ(fences_.passed(), 2u);
  EXPECT_EQ(retired_, (std::vector{10, 20}));
}

TEST_F(FencesTest, AMarkWithoutAnEventPassesWithTheNext) {
  fences_.record(1, 10);
  EXPECT_EQ(fences_.find(2), std::nullopt);
  fences_.record(3, 30);
  EXPECT_EQ(fences_.find(1), 10);
  EXPECT_EQ(fences_.find(2), 30);
  ended_ = {10, 30};
  EXPECT_TRUE(poll());
  EXPECT_EQ(fences_.passed(), 3u);
  EXPECT_EQ(fences_.recorded(), 3u);
}

TEST_F(FencesTest, NothingPassesBehindAFailure) {
  fences_.record(1, 10);
  fences_.record(2, 20);
  ended_ = {20};
  failed_ = 10;
  EXPECT_FALSE(poll());
  EXPECT_EQ(fences_.passed(), 0u);
}

}  // namespace
}  // namespace braid::kv
