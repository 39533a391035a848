// A connection that breaks may swallow a message without a word, and the link live on.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <ostream>
#include <string>

#include "transfer/rail_net.h"

namespace braid::transfer::test {
namespace {

namespace fs = std::filesystem;

struct Question {
  const char* name;
  Operation operation;
  bool is_of_file;
};
void PrintTo(const Question& question, std::ostream* out) { *out << question.name; }

class LostQuestionsTest : public testing::TestWithParam<Question> {
 protected:
  static constexpr size_t kBytes = 4096;

  LostQuestionsTest() {
    fs::create_directories(root_);
    std::ofstream(root_ / "log") << "something";
    EXPECT_TRUE(owner_.owned.exports.add("kv", root_.string(), kMayRead | kMayWrite).ok());
    net_.add_buffer(owner_, theirs_, kMayRead | kMayWrite);
  }
  ~LostQuestionsTest() override { fs::remove_all(root_); }

  /// What the operation names: an address, or a place in a file.
  Piece piece(uint64_t id) {
    const auto [name, operation, is_of_file] = GetParam();
    if (!is_of_file)
      return {id, operation, buffer_, mine_, reinterpret_cast<uint64_t>(theirs_.data()), 0};
    uint64_t file = 0, size_bytes = 0;
    EXPECT_EQ(open_now(owner_.owned.exports, "kv/log", kMayWrite, file, size_bytes), Cause::kNone);
    return {id, operation, buffer_, mine_, 0, file};
  }

  void expect_all_end(const std::function<void()>& meanwhile) {
    net_.run(static_cast<double>(kAskAgainNs) / 1e3);
    EXPECT_TRUE(me_.ended.empty()) << "its question was answered";
    me_.rail->post(link_, piece(2));  // as the scheduler does with what is late
    net_.run(1'000);
    meanwhile();
    ASSERT_TRUE(net_.run(500'000, [&] { return me_.ended.size() == 2; }));
    EXPECT_EQ(me_.ended, (std::map<uint64_t, Cause>{{1, Cause::kNone}, {2, Cause::kNone}}));
    EXPECT_TRUE(me_.lost.empty() && owner_.lost.empty());
  }

  RailNet net_;
  RailNet::Side &owner_ = net_.add(), &me_ = net_.add();
  std::vector<std::byte> theirs_ = std::vector<std::byte>(kBytes), mine_ = theirs_;
  const uint64_t buffer_ = net_.add_buffer(me_, mine_, kNoRights);
  const uint64_t link_ = net_.connect(me_, owner_);
  const fs::path root_ = fs::path(testing::TempDir()) / ("braid-lost-" + std::to_string(getpid()));
};

TEST_P(LostQuestionsTest, AreAskedAgain) {
  net_.network().cut(*me_.domain, fabric::sim::Break::kSilent);
  me_.rail->post(link_, piece(1));
  net_.run(1'000);
  net_.network().mend(*me_.domain);
  expect_all_end([] {});
}

/// The first one was not lost: its owner stood still.
TEST_P(LostQuestionsTest, DoNoHarmTwice) {
  net_.pause(owner_);
  me_.rail->post(link_, piece(1));
  expect_all_end([&] { net_.resume(owner_); });
}

/// They wait for the answer alone: nobody posts them again while other things keep ending.
TEST_P(LostQuestionsTest, EndWithTheirLinkThoughOthersAreAnswered) {
  net_.network().cut(*me_.domain, fabric::sim::Break::kSwallows);
  me_.rail->post(link_, piece(1));
  net_.run(1'000);
  net_.network().mend(*me_.domain);
  for (int i = 0; i < 8'000 && me_.ended.empty(); ++i) {
    me_.rail->ping(link_, 1);
    net_.run(1'000);
  }
  EXPECT_EQ(me_.ended, (std::map<uint64_t, Cause>{{1, Cause::kPathFailed}}));
  EXPECT_FALSE(me_.lost.empty() || owner_.lost.empty());
}

/// It answers as an engine of the fabric, and its hello never comes.
TEST(LostHelloTest, ALinkWithoutAHelloIsLost) {
  RailNet net;
  RailNet::Side& me = net.add();
  const auto owner = net.add_stranger();
  const uint64_t link =
      me.rail->dial({9, 9}, fabric::encode(owner->address()), net.now_ns() + 100'000'000).value();
  net.run(1'000'000);
  EXPECT_TRUE(me.lost.empty()) << "it may still come";
  ASSERT_TRUE(net.run(10'000'000, [&] { return !me.lost.empty(); }));
  EXPECT_EQ(me.lost.front().link, link);
  net.stop();
}

INSTANTIATE_TEST_SUITE_P(Of, LostQuestionsTest,
                         testing::Values(Question{"Grant", Operation::kWrite, false},
                                         Question{"Loan", Operation::kRead, false},
                                         Question{"Stage", Operation::kWrite, true}),
                         [](const auto& each) { return each.param.name; });

}  // namespace
}  // namespace braid::transfer::test
