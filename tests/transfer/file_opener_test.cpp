// Threads that open files: few for one folder and for one peer, and none that others wait for.
#include "transfer/file_opener.h"

#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <latch>
#include <memory>
#include <optional>

#include "support/eventually.h"

namespace braid::transfer {
namespace {

using braid::test::eventually;

/// A call that a file system does not answer until the end of the test.
struct Unanswered {
  std::latch answer{1};
  std::atomic<size_t> calls = 0;
  auto call() {
    return [this] {
      ++calls;
      answer.wait();
    };
  }
};

class FileOpenerTest : public testing::Test {
 protected:
  void SetUp() override { opener_.emplace(); }
  void start(uint64_t peer, uint64_t folder, std::function<void()> run) {
    opener_->start({{1, peer}, folder, false, std::move(run), [this](bool) { ++ended_; }});
  }
  bool ends(size_t count) {
    return eventually([&] {
      (void)opener_->step();
      return ended_ == count;
    });
  }

  Unanswered unanswered_;
  std::optional<FileOpener> opener_;
  size_t ended_ = 0;
};

TEST_F(FileOpenerTest, APeerThatAsksForMuchLeavesThreadsToTheOthers) {
  constexpr size_t kFiles = 200;
  for (size_t i = 0; i < kFiles; ++i) start(1, i, unanswered_.call());
  for (size_t peer = 2; peer < 50; ++peer) start(peer, kFiles, [] {});
  EXPECT_TRUE(ends(48));
  EXPECT_TRUE(eventually([&] { return unanswered_.calls >= FileOpener::kOfPeerMax; }));
  EXPECT_EQ(unanswered_.calls, FileOpener::kOfPeerMax);
  unanswered_.answer.count_down();
  EXPECT_TRUE(ends(48 + kFiles));
  EXPECT_EQ(opener_->under_way(), 0u);
}

TEST_F(FileOpenerTest, AFolderThatDoesNotAnswerLeavesThreadsToTheOthers) {
  constexpr size_t kPeers = 200;
  for (size_t peer = 1; peer <= kPeers; ++peer) start(peer, 1, unanswered_.call());
  for (size_t peer = 1; peer <= kPeers; ++peer) start(peer, 2, [] {});
  EXPECT_TRUE(ends(kPeers));
  EXPECT_TRUE(eventually([&] { return unanswered_.calls >= FileOpener::kOfFolderMax; }));
  EXPECT_EQ(unanswered_.calls, FileOpener::kOfFolderMax);
  unanswered_.answer.count_down();
  EXPECT_TRUE(ends(2 * kPeers));
}

/// What a thread has opened by then is given back by that thread.
TEST_F(FileOpenerTest, EndsThoughACallHasNoAnswer) {
  const auto held = std::make_shared<int>();
  start(1, 1, [held, call = unanswered_.call()] { call(); });
  EXPECT_TRUE(eventually([&] { return unanswered_.calls == 1; }));
  std::atomic<bool> is_closed = false;
  opener_->start({{}, 2, true, [&] { is_closed = true; }, nullptr});
  opener_.reset();
  EXPECT_TRUE(is_closed) << "what is to be closed is closed";
  EXPECT_GT(held.use_count(), 1);
  unanswered_.answer.count_down();
  EXPECT_TRUE(eventually([&] { return held.use_count() == 1; })) << "the thread has not ended";
  EXPECT_EQ(ended_, 0u) << "nobody is told any more";
}

}  // namespace
}  // namespace braid::transfer
