// Reads and writes of files that are given up while the owner's file system does not answer: the
// link goes on, and nothing of them lands later.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>

#include "transfer/rail_net.h"

namespace braid::transfer::test {
namespace {

namespace fs = std::filesystem;

/// A file system that answers nothing while it is held.
class HeldJobs final : public FileJobs {
 public:
  void start(FileJob job) override { jobs_.start(std::move(job)); }
  bool take_back(uint64_t) override { return false; }
  bool step() override { return !is_held && jobs_.step(); }
  int descriptor() const override { return -1; }
  bool arm() override { return is_held || jobs_.arm(); }
  size_t under_way() const override { return jobs_.under_way(); }
  bool is_held = true;

 private:
  JobsAtOnce jobs_;
};

class GivingUpTest : public testing::Test {
 protected:
  static constexpr size_t kBytes = 2 << 20;  // several parts

  GivingUpTest() {
    fs::create_directories(root_);
    std::ofstream(root_ / "log") << std::string(kBytes, 'f');
    EXPECT_TRUE(owner_.owned.exports.add("kv", root_.string(), kMayRead | kMayWrite).ok());
    net_.add_buffer(owner_, theirs_, kMayRead | kMayWrite);
    auto jobs = std::make_unique<HeldJobs>();
    jobs_ = jobs.get();
    owner_.owned.jobs = std::move(jobs);
    uint64_t size_bytes = 0;
    EXPECT_EQ(open_now(owner_.owned.exports, "kv/log", kMayRead | kMayWrite, file_, size_bytes),
              Cause::kNone);
  }
  ~GivingUpTest() override { fs::remove_all(root_); }

  void start(uint64_t id, Operation operation) {
    me_.rail->post(link_, {id, operation, buffer_, mine_, 0, file_});
    ASSERT_TRUE(net_.run(100'000, [&] { return jobs_->under_way() > 0; }));
  }
  bool has_ended(uint64_t id, double limit_us = 100'000) {
    return net_.run(limit_us, [&] { return me_.ended.contains(id); });
  }
  /// Memory of the owner, over the same link.
  void others_go_on() {
    const MutableBytes part = MutableBytes(mine_).first(64);
    me_.rail->post(link_, {100, Operation::kWrite, buffer_, part,
                           reinterpret_cast<uint64_t>(theirs_.data()), 0});
    ASSERT_TRUE(has_ended(100));
    EXPECT_EQ(me_.ended[100], Cause::kNone);
    EXPECT_TRUE(me_.lost.empty() && owner_.lost.empty());
  }
  void answer() {
    jobs_->is_held = false;
    net_.run(100'000);
    EXPECT_EQ(jobs_->under_way(), 0u);
  }
  bool is_file(char letter) const {
    std::string text(kBytes, 0);
    std::ifstream(root_ / "log").read(text.data(), kBytes);
    return text == std::string(kBytes, letter);
  }

  RailNet net_;
  RailNet::Side &owner_ = net_.add(), &me_ = net_.add();
  HeldJobs* jobs_ = nullptr;
  std::vector<std::byte> theirs_ = std::vector<std::byte>(64);
  std::vector<std::byte> mine_ = std::vector<std::byte>(kBytes, std::byte{'m'});
  uint64_t file_ = 0;
  const uint64_t buffer_ = net_.add_buffer(me_, mine_, kNoRights);
  const uint64_t link_ = net_.connect(me_, owner_);
  const fs::path root_ =
      fs::path(testing::TempDir()) / ("braid-giving-up-" + std::to_string(getpid()));
};

TEST_F(GivingUpTest, AReadThatTheFileSystemHoldsUpEndsAtOnceAndLandsNowhere) {
  start(1, Operation::kRead);
  EXPECT_FALSE(has_ended(1, 1'000));
  me_.rail->give_up(link_, 1);
  ASSERT_TRUE(has_ended(1, 1'000));
  EXPECT_EQ(me_.ended[1], Cause::kCancelled);
  others_go_on();
  answer();
  EXPECT_EQ(mine_, std::vector<std::byte>(kBytes, std::byte{'m'}));
  start(2, Operation::kRead);
  ASSERT_TRUE(has_ended(2));
  EXPECT_EQ(me_.ended[2], Cause::kNone);
  EXPECT_EQ(mine_, std::vector<std::byte>(kBytes, std::byte{'f'}));
}

TEST_F(GivingUpTest, AWriteThatTheFileSystemHoldsUpEndsOnceItHasAnswered) {
  start(1, Operation::kWrite);
  me_.rail->give_up(link_, 1);
  others_go_on();
  EXPECT_FALSE(has_ended(1, 2'000'000)) << "it may be written still";
  answer();
  ASSERT_TRUE(has_ended(1));
  others_go_on();
  start(2, Operation::kWrite);
  ASSERT_TRUE(has_ended(2));
  EXPECT_TRUE(is_file('m'));
}

TEST_F(GivingUpTest, ItIsSaidAgainIfTheMessageWasLost) {
  start(1, Operation::kRead);
  net_.network().cut(*me_.domain, fabric::sim::Break::kSilent);
  me_.rail->give_up(link_, 1);
  net_.run(1'000);
  net_.network().mend(*me_.domain);
  EXPECT_FALSE(has_ended(1, 1'000)) << "the message was not lost";
  EXPECT_TRUE(has_ended(1, static_cast<double>(kAskAgainNs) / 1e3 + 10'000));
  others_go_on();
}

/// A part of it is on its way by then, and its write fails.
TEST_F(GivingUpTest, AReadOfWhichAPartMayStillLandEndsWithItsLink) {
  net_.network().deny_access(*me_.domain, mine_);
  start(1, Operation::kRead);
  jobs_->is_held = false;
  ASSERT_TRUE(net_.run(1'000, [&] { return jobs_->under_way() == 0; }));
  me_.rail->give_up(link_, 1);
  ASSERT_TRUE(has_ended(1));
  EXPECT_EQ(me_.ended[1], Cause::kPathFailed);
  EXPECT_FALSE(me_.lost.empty());
}

TEST_F(GivingUpTest, WhatTheOwnerWasNotAskedForYetEndsAndIsNeverAskedFor) {
  me_.rail->post(link_, {1, Operation::kWrite, buffer_, mine_, 0, file_});  // it has no stage yet
  me_.rail->post(link_, {2, Operation::kRead, buffer_, mine_, 0, file_});   // nor a loan
  for (const uint64_t id : {1, 2}) me_.rail->give_up(link_, id);
  ASSERT_TRUE(has_ended(1) && has_ended(2));
  jobs_->is_held = false;
  others_go_on();
  net_.run(100'000);
  EXPECT_TRUE(is_file('f'));
  EXPECT_EQ(mine_, std::vector<std::byte>(kBytes, std::byte{'m'}));
}

}  // namespace
}  // namespace braid::transfer::test
