// Folders whose file systems answer no read: those who read other files over the same link go on.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <set>
#include <string>

#include "transfer/rail_net.h"

namespace braid::transfer::test {
namespace {

namespace fs = std::filesystem;

/// File systems of which some answer nothing.
class HungJobs final : public FileJobs {
 public:
  void start(FileJob job) override {
    hung.contains(job.file->folder) ? held_.push_back(std::move(job)) : jobs_.start(std::move(job));
  }
  bool take_back(uint64_t) override { return false; }
  bool step() override { return jobs_.step(); }
  int descriptor() const override { return -1; }
  bool arm() override { return jobs_.arm(); }
  size_t under_way() const override { return held_.size() + jobs_.under_way(); }
  void answer() {
    hung.clear();
    for (FileJob& job : std::exchange(held_, {})) jobs_.start(std::move(job));
  }
  std::set<uint64_t> hung;

 private:
  std::vector<FileJob> held_;
  JobsAtOnce jobs_;
};

class HungFoldersTest : public testing::Test {
 protected:
  static constexpr size_t kBytes = 16 << 20;  // 32 parts: a link has 16
  static constexpr int kFolders = 4;          // of which the last one answers

  HungFoldersTest() {
    auto jobs = std::make_unique<HungJobs>();
    jobs_ = jobs.get();
    owner_.owned.jobs = std::move(jobs);
    for (int i = 0; i < kFolders; ++i) add_folder(i);
  }
  ~HungFoldersTest() override { fs::remove_all(root_); }

  void add_folder(int number) {
    const std::string name = "folder" + std::to_string(number);
    fs::create_directories(root_ / name);
    std::ofstream(root_ / name / "file") << std::string(kBytes, letter(number));
    EXPECT_TRUE(owner_.owned.exports.add(name, (root_ / name).string(), kMayRead).ok());
    uint64_t size_bytes = 0;
    EXPECT_EQ(open_now(owner_.owned.exports, name + "/file", kMayRead, files_[number], size_bytes),
              Cause::kNone);
  }
  static char letter(int number) { return static_cast<char>('a' + number); }
  void read(int number) {
    buffers_[number] = net_.add_buffer(me_, mine_[number], kNoRights);
    me_.rail->post(link_, {static_cast<uint64_t>(number + 1), Operation::kRead, buffers_[number],
                           mine_[number], 0, files_[number]});
  }
  bool has_ended(int number) {
    const uint64_t id = static_cast<uint64_t>(number + 1);
    return net_.run(1'000'000, [&] { return me_.ended.contains(id); }) &&
           me_.ended[id] == Cause::kNone;
  }
  bool is_right(int number) const {
    return mine_[number] == std::vector<std::byte>(kBytes, static_cast<std::byte>(letter(number)));
  }

  RailNet net_;
  RailNet::Side &owner_ = net_.add(), &me_ = net_.add();
  HungJobs* jobs_ = nullptr;
  uint64_t files_[kFolders] = {}, buffers_[kFolders] = {};
  std::vector<std::vector<std::byte>> mine_ = std::vector(kFolders, std::vector<std::byte>(kBytes));
  const uint64_t link_ = net_.connect(me_, owner_);
  const fs::path root_ = fs::path(testing::TempDir()) / ("braid-hung-" + std::to_string(getpid()));
};

TEST_F(HungFoldersTest, HoweverManyKeepWhatTheyHaveAnotherOneIsRead) {
  constexpr int kHung = kFolders - 1;
  for (int i = 0; i < kHung; ++i) jobs_->hung.insert(static_cast<uint64_t>(i + 1));
  for (int i = 0; i < kHung; ++i) read(i);
  net_.run(10'000);
  ASSERT_GE(jobs_->under_way(), 16u) << "they leave memory to others anyway";
  read(kHung);
  EXPECT_TRUE(has_ended(kHung));
  EXPECT_TRUE(is_right(kHung));
  jobs_->answer();
  for (int i = 0; i < kHung; ++i) {
    EXPECT_TRUE(has_ended(i)) << i;
    EXPECT_TRUE(is_right(i)) << i;
  }
}

TEST_F(HungFoldersTest, OneTakesNoMoreThanHalfOfWhatALinkHas) {
  jobs_->hung = {1};
  read(0);
  net_.run(10'000);
  EXPECT_EQ(jobs_->under_way(), 8u);
  jobs_->answer();
  EXPECT_TRUE(has_ended(0));
  EXPECT_TRUE(is_right(0));
}

}  // namespace
}  // namespace braid::transfer::test
