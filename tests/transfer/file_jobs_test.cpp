// Jobs on files by io_uring and by threads: the same bytes, the same causes.
#include "transfer/file_jobs.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "fabric/call_filter.h"
#include "transfer/hung_folder.h"
#include "transfer/pattern.h"

namespace braid::transfer {
namespace {

class FileJobsTest : public testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    jobs_ = GetParam() ? open_ring() : open_threads();
    if (jobs_ == nullptr) GTEST_SKIP() << "the kernel refuses io_uring here";
    path_ = testing::TempDir() + "/braid-jobs-" + std::to_string(getpid());
    file_->cached = Descriptor(open(path_.c_str(), O_RDWR | O_CREAT | O_TRUNC, 0600));
    file_->direct = Descriptor(open(path_.c_str(), O_RDWR | O_DIRECT));
    file_->is_local = true;
  }
  void TearDown() override {
    unlink(path_.c_str());
    std::filesystem::remove(path_ + "-hung");
  }

  void start(bool is_write, MutableBytes memory, uint64_t position, Cause& cause) {
    ++started_;
    jobs_->start({is_write, file_, memory, position, [this, &cause](Cause ended) {
                    cause = ended;
                    ++ended_;
                  }});
  }
  void wait() {
    wait_for(ended_, started_);
    EXPECT_EQ(jobs_->under_way(), 0u);
  }
  void wait_for(const size_t& ended, size_t count) {
    while (ended < count) {
      pollfd awaited{jobs_->descriptor(), POLLIN, 0};
      ASSERT_EQ(poll(&awaited, 1, 10'000), 1) << "they do not end";
      jobs_->step();
    }
  }

  std::unique_ptr<FileJobs> jobs_;
  std::shared_ptr<OpenFile> file_ = std::make_shared<OpenFile>();
  std::string path_;
  size_t started_ = 0, ended_ = 0;
};

TEST_P(FileJobsTest, MoveEveryByteWhateverTheAlignment) {
  constexpr size_t kBytes = 1 << 20;
  auto* memory = static_cast<std::byte*>(std::aligned_alloc(4096, 2 * kBytes));
  test::fill({memory, kBytes}, 5);
  // Side by side at once; jobs that overlap have no order.
  for (const size_t size : {4096, 65536, 5000, 8192}) {
    std::vector<Cause> causes(70'000 / size, Cause::kPathFailed);
    for (size_t i = 0; i < causes.size(); ++i)
      start(true, {memory + i * size, size}, i * size, causes[i]);
    wait();
    EXPECT_EQ(causes, std::vector(causes.size(), Cause::kNone)) << size;
  }
  Cause read = Cause::kPathFailed;
  start(false, {memory + kBytes, 65'536}, 0, read);
  wait();
  EXPECT_EQ(read, Cause::kNone);
  EXPECT_EQ(test::wrong_at({memory + kBytes, 65'536}, 5), std::nullopt);
  std::free(memory);
}

TEST_P(FileJobsTest, AFileThatEndsBeforeIsNotTakenForWhole) {
  std::vector<std::byte> bytes(10'000);
  test::fill(bytes, 6);
  Cause written = Cause::kPathFailed, beyond = Cause::kNone, far = Cause::kNone;
  start(true, bytes, 0, written);
  wait();
  start(false, bytes, 1, beyond);
  start(false, bytes, 1 << 20, far);
  wait();
  EXPECT_EQ(written, Cause::kNone);
  EXPECT_EQ(beyond, Cause::kOutside);
  EXPECT_EQ(far, Cause::kOutside);
}

TEST_P(FileJobsTest, AFileThatMayNotBeWrittenIsAnError) {
  file_->cached = Descriptor(open(path_.c_str(), O_RDONLY));
  file_->direct = Descriptor();
  std::vector<std::byte> bytes(100);
  Cause cause = Cause::kNone;
  start(true, bytes, 0, cause);
  wait();
  EXPECT_EQ(cause, Cause::kFileError);
}

/// /dev/full has no space, ever.
TEST_P(FileJobsTest, NoSpaceIsACauseOfItsOwn) {
  file_->cached = Descriptor(open("/dev/full", O_RDWR));
  file_->direct = Descriptor();
  std::vector<std::byte> bytes(100);
  Cause cause = Cause::kNone;
  start(true, bytes, 0, cause);
  wait();
  EXPECT_EQ(cause, Cause::kNoSpace);
}

/// They belong to the program's threads, and the first one of another would end it here.
TEST_P(FileJobsTest, NoSignalOfTheProgramComesToItsThreads) {
  std::vector<std::byte> bytes(100);
  Cause written = Cause::kPathFailed;
  start(true, bytes, 0, written);
  wait();
  sigset_t one{};
  sigemptyset(&one);
  sigaddset(&one, SIGUSR1);
  ASSERT_EQ(pthread_sigmask(SIG_BLOCK, &one, nullptr), 0);
  ASSERT_EQ(kill(getpid(), SIGUSR1), 0);
  const timespec limit{10, 0};
  EXPECT_EQ(sigtimedwait(&one, nullptr, &limit), SIGUSR1);
}

/// As where the kernel allows no further thread: no stack is that large.
class NoFurtherThreads {
 public:
  NoFurtherThreads() {
    pthread_getattr_default_np(&before_);
    pthread_attr_t attributes = before_;
    pthread_attr_setstacksize(&attributes, size_t{1} << 47);
    is_set_ = pthread_setattr_default_np(&attributes) == 0;
  }
  ~NoFurtherThreads() { pthread_setattr_default_np(&before_); }
  bool is_set() const { return is_set_; }

 private:
  pthread_attr_t before_{};
  bool is_set_ = false;
};

TEST_P(FileJobsTest, AJobForWhichNoThreadStartsEndsWithACauseAndLaterOnesGoOn) {
  std::vector<std::byte> bytes(100);
  Cause without = Cause::kPathFailed, after = Cause::kPathFailed, with_one = Cause::kPathFailed;
  {
    const NoFurtherThreads none;
    ASSERT_TRUE(none.is_set());
    start(true, bytes, 0, without);
    EXPECT_EQ(ended_, 0u) << "who starts a job is not called meanwhile";
    wait();
  }
  start(true, bytes, 0, after);
  wait();
  {
    const NoFurtherThreads none;
    start(false, bytes, 0, with_one);
    wait();
  }
  EXPECT_EQ(without, GetParam() ? Cause::kNone : Cause::kTooMuch);
  EXPECT_EQ(after, Cause::kNone);
  EXPECT_EQ(with_one, Cause::kNone);
}

/// Any thread of the program may submit requests. What the kernel has begun for one that exits ends
/// with an error that says nothing of the file.
TEST_P(FileJobsTest, JobsOfAThreadThatExitsEndAsThoseOfOthers) {
  constexpr size_t kJobs = 200, kJobBytes = 256 << 10;
  std::vector<std::byte> bytes(kJobs * kJobBytes);
  test::fill(bytes, 8);
  ASSERT_EQ(pwrite(file_->cached.get(), bytes.data(), bytes.size(), 0),
            static_cast<ssize_t>(bytes.size()));
  // Reads have to wait for the disk: they are none that the cache answers at once.
  ASSERT_EQ(fsync(file_->cached.get()), 0);
  posix_fadvise(file_->cached.get(), 0, 0, POSIX_FADV_DONTNEED);
  std::vector<std::byte> read(bytes.size());
  std::vector<Cause> causes(kJobs, Cause::kPathFailed);
  std::thread([&] {
    for (size_t i = 0; i < kJobs; ++i)  // unaligned: through the cache
      start(false, MutableBytes(read).subspan(i * kJobBytes + 1, kJobBytes - 1), i * kJobBytes + 1,
            causes[i]);
  }).join();
  wait();
  EXPECT_EQ(causes, std::vector(kJobs, Cause::kNone));
  for (size_t i = 0; i < kJobs; ++i) read[i * kJobBytes] = bytes[i * kJobBytes];
  EXPECT_EQ(test::wrong_at(read, 8), std::nullopt);
}

/// Memory that is not there is an error of its job, whoever does it.
TEST_P(FileJobsTest, MemoryThatIsNotThereIsAnError) {
  const std::vector<std::byte> bytes(5000);
  ASSERT_EQ(pwrite(file_->cached.get(), bytes.data(), bytes.size(), 0), 5000);
  Cause cause = Cause::kNone, next = Cause::kPathFailed;
  std::vector<std::byte> good(5000);
  start(false, {reinterpret_cast<std::byte*>(4096), 4097}, 1, cause);
  wait();
  start(false, good, 0, next);
  wait();
  EXPECT_EQ(cause, Cause::kFileError);
  EXPECT_EQ(next, Cause::kNone);
}

/// As where a program limits its system calls once its engine is open. One read has begun before.
TEST_P(FileJobsTest, AKernelThatRefusesIoUringLaterLosesNoJob) {
  constexpr size_t kJobs = 300, kJobBytes = 5000;
  using namespace braid::fabric::test;
  if (!GetParam()) GTEST_SKIP() << "threads need no io_uring";
  int pipe_ends[2] = {-1, -1};
  ASSERT_EQ(pipe(pipe_ends), 0);
  const Descriptor to(pipe_ends[1]);
  const auto empty = std::make_shared<OpenFile>();
  empty->cached = Descriptor(pipe_ends[0]);
  empty->is_local = true;
  std::vector<std::byte> bytes(kJobs * kJobBytes), first(100), late(100);
  test::fill(bytes, 8);
  test::fill(late, 9);
  Cause begun = Cause::kPathFailed;
  jobs_->start({false, empty, first, 0, [&](Cause cause) {
                  begun = cause;
                  ++ended_;
                }});
  if (!filter_calls({load_number(), skip_unless(SYS_io_uring_enter, 1), fabric::test::refuse(EPERM),
                     allow()}))
    GTEST_SKIP() << "calls cannot be filtered here";
  for (const bool is_write : {true, false}) {
    std::vector<Cause> causes(kJobs, Cause::kPathFailed);
    for (size_t i = 0; i < kJobs; ++i)
      start(is_write, MutableBytes(bytes).subspan(i * kJobBytes, kJobBytes), i * kJobBytes,
            causes[i]);
    wait_for(ended_, started_);
    EXPECT_EQ(causes, std::vector(kJobs, Cause::kNone));
    EXPECT_EQ(test::wrong_at(bytes, 8), std::nullopt);
    if (is_write) std::fill(bytes.begin(), bytes.end(), std::byte{});
  }
  EXPECT_EQ(jobs_->under_way(), 1u);
  ASSERT_EQ(write(to.get(), late.data(), late.size()), 100);
  wait_for(ended_, started_ + 1);
  EXPECT_EQ(begun, Cause::kNone);
  EXPECT_EQ(first, late);
}

/// As many as there are threads or entries of the ring, of a folder that does not answer.
TEST_P(FileJobsTest, AFolderThatDoesNotAnswerLeavesRoomForTheOthers) {
  constexpr size_t kHung = 300;
  test::HungFolder hung(path_ + "-hung");
  if (!hung.is_mounted()) GTEST_SKIP() << "this process may not mount FUSE";
  const auto stuck = std::make_shared<OpenFile>();
  stuck->cached = Descriptor(open((path_ + "-hung/file").c_str(), O_RDONLY));
  stuck->direct = Descriptor(open((path_ + "-hung/file").c_str(), O_RDONLY | O_DIRECT));
  stuck->folder = 1;
  file_->folder = 2;
  std::vector<std::byte> bytes(kHung * 4096), good(5000);
  test::fill(good, 9);
  ASSERT_EQ(pwrite(file_->cached.get(), good.data(), good.size(), 0), 5000);
  test::fill(good, 0);
  std::vector<Cause> causes(kHung, Cause::kPathFailed);
  size_t read = 0;
  for (size_t i = 0; i < kHung; ++i)
    jobs_->start(
        {false, stuck, MutableBytes(bytes).subspan(i * 4096, 4096), i * 4096, [&, i](Cause cause) {
           causes[i] = cause;
           ++read;
         }});
  Cause other = Cause::kPathFailed;
  start(false, good, 0, other);
  wait_for(ended_, 1);
  EXPECT_EQ(other, Cause::kNone);
  EXPECT_EQ(test::wrong_at(good, 9), std::nullopt);
  EXPECT_EQ(read, 0u);
  hung.answer();
  wait_for(read, kHung);
  EXPECT_EQ(causes, std::vector(kHung, Cause::kNone));
  EXPECT_EQ(test::wrong_at(bytes, test::HungFolder::kSeed), std::nullopt);
}

/// Of a folder that does not answer. Those that have begun stay.
TEST_P(FileJobsTest, WhatHasNotBegunIsTakenBack) {
  constexpr size_t kHung = 300, kBegunMax = 64;
  test::HungFolder hung(path_ + "-hung");
  if (!hung.is_mounted()) GTEST_SKIP() << "this process may not mount FUSE";
  const auto stuck = std::make_shared<OpenFile>();
  stuck->cached = Descriptor(open((path_ + "-hung/file").c_str(), O_RDONLY));
  std::vector<std::byte> bytes(kHung * 4096);
  size_t read = 0, taken = 0;
  for (size_t i = 0; i < kHung; ++i)
    jobs_->start({false, stuck, MutableBytes(bytes).subspan(i * 4096, 4096), i * 4096,
                  [&](Cause) { ++read; }, i + 1});
  for (size_t i = 0; i < kHung; ++i) taken += jobs_->take_back(kHung - i) ? 1 : 0;
  EXPECT_GE(taken, kHung - kBegunMax);
  EXPECT_EQ(jobs_->under_way(), kHung - taken);
  EXPECT_FALSE(jobs_->take_back(kHung));
  hung.answer();
  wait_for(read, kHung - taken);
  std::vector<std::byte> after(4096);
  Cause again = Cause::kPathFailed;
  stuck->folder = 0;
  file_ = stuck;
  start(false, after, 0, again);
  wait();
  EXPECT_EQ(again, Cause::kNone);
  EXPECT_EQ(read, kHung - taken);
}

INSTANTIATE_TEST_SUITE_P(Kinds, FileJobsTest, testing::Bool(), [](const auto& is_ring) {
  return std::string(is_ring.param ? "Ring" : "Threads");
});

}  // namespace
}  // namespace braid::transfer
