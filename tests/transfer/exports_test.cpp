// Files of exported folders where this process may open few: each stays usable, and none is taken
// for another.
#include "transfer/exports.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "support/eventually.h"
#include "transfer/directory/resolve.h"
#include "transfer/directory/server.h"
#include "transfer/exports_calls.h"

namespace {

/// A descriptor whose file system does not answer a `close` while this names it.
std::atomic<int> held_descriptor{-1};

}  // namespace

/// In place of the C library's, for this program.
extern "C" int close(int descriptor) {
  while (descriptor >= 0 && descriptor == held_descriptor)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  return static_cast<int>(syscall(SYS_close, descriptor));
}

namespace braid::transfer {
namespace {

namespace fs = std::filesystem;
using test::open_now;
using test::settle;
using test::use_now;

size_t descriptors() {
  return static_cast<size_t>(
      std::distance(fs::directory_iterator("/proc/self/fd"), fs::directory_iterator()));
}

/// Takes all descriptors that this process may open, until the end.
class NoMoreDescriptors {
 public:
  NoMoreDescriptors() {
    getrlimit(RLIMIT_NOFILE, &before_);
    const rlimit few{static_cast<rlim_t>(descriptors() + 8), before_.rlim_max};
    setrlimit(RLIMIT_NOFILE, &few);
    for (int each = open("/dev/null", O_RDONLY); each >= 0; each = open("/dev/null", O_RDONLY))
      taken_.emplace_back(each);
  }
  ~NoMoreDescriptors() { setrlimit(RLIMIT_NOFILE, &before_); }

 private:
  rlimit before_{};
  std::vector<Descriptor> taken_;
};

class ExportsTest : public testing::Test {
 protected:
  static constexpr size_t kOpen = 4;

  ExportsTest() {
    fs::create_directories(root_);
    EXPECT_TRUE(exports_.add("kv", root_.string(), kMayRead | kMayWrite).ok());
  }
  ~ExportsTest() override { fs::remove_all(root_); }

  void write(const std::string& name, const std::string& text) const {
    std::ofstream(root_ / name) << text;
  }
  /// As programs write them: a new file under another name, which then takes the old one's place.
  void replace(const std::string& name, const std::string& text) const {
    write("new", text);
    fs::rename(root_ / "new", root_ / name);
  }
  uint64_t open(const std::string& name, Rights rights = kMayRead) {
    uint64_t file = 0, size_bytes = 0;
    EXPECT_EQ(open_now(exports_, "kv/" + name, rights, file, size_bytes), Cause::kNone) << name;
    return file;
  }
  /// Its bytes, or why there are none.
  std::string read(uint64_t file) {
    OpenFilePointer opened;
    const Cause cause = use_now(exports_, file, kMayRead, opened);
    if (cause != Cause::kNone) return cause_name(cause);
    std::string text(64, ' ');
    const ssize_t got = pread(opened->cached.get(), text.data(), text.size(), 0);
    return text.substr(0, static_cast<size_t>(got));
  }
  /// Others are used until nothing that was used before is open.
  void use_others() {
    for (size_t i = 0; i <= kOpen; ++i) {
      write("other" + std::to_string(i), "");
      open("other" + std::to_string(i));
    }
  }

  const fs::path root_ =
      fs::path(testing::TempDir()) / ("braid-exports-" + std::to_string(getpid()));
  Exports exports_{kOpen};
};

TEST_F(ExportsTest, ManyFilesAreUsedThoughFewAreOpen) {
  constexpr size_t kFiles = 6000;
  const size_t before = descriptors();
  std::vector<uint64_t> files;
  for (size_t i = 0; i < kFiles; ++i) {
    write(std::to_string(i), "text " + std::to_string(i));
    files.push_back(open(std::to_string(i)));
  }
  EXPECT_LE(descriptors(), before + 2 * kOpen);
  for (size_t i = 0; i < kFiles; i += 7) EXPECT_EQ(read(files[i]), "text " + std::to_string(i));
  EXPECT_LE(descriptors(), before + 2 * kOpen);
  EXPECT_EQ(open("5"), files[5]) << "the same file has the same number";
}

TEST_F(ExportsTest, AFileThatIsHeldStaysOpenAndIsWhatItWas) {
  write("held", "old");
  OpenFilePointer held;
  ASSERT_EQ(use_now(exports_, open("held"), kMayRead, held), Cause::kNone);
  use_others();
  replace("held", "new");
  std::string text(3, ' ');
  EXPECT_EQ(pread(held->cached.get(), text.data(), 3, 0), 3);
  EXPECT_EQ(text, "old");
}

TEST_F(ExportsTest, OneThatWasReplacedWhileItWasClosedIsNotTakenForTheOther) {
  write("session", "old");
  const uint64_t before = open("session");
  EXPECT_EQ(read(before), "old");
  use_others();
  replace("session", "new");
  EXPECT_EQ(read(before), cause_name(Cause::kNoFile));
  const uint64_t after = open("session");
  EXPECT_NE(after, before);
  EXPECT_EQ(read(after), "new");
  use_others();
  fs::remove(root_ / "session");
  write("session", "newer");  // file systems give the inode's number again
  EXPECT_EQ(read(after), cause_name(Cause::kNoFile));
}

TEST_F(ExportsTest, OneThatIsWrittenIsNotMadeAgainWhenItWasRemoved) {
  const uint64_t file = open("made", kMayRead | kMayWrite);
  ASSERT_TRUE(fs::exists(root_ / "made"));
  use_others();
  OpenFilePointer opened;
  EXPECT_EQ(use_now(exports_, file, kMayWrite, opened), Cause::kNone);
  opened = nullptr;
  use_others();
  fs::remove(root_ / "made");
  EXPECT_EQ(use_now(exports_, file, kMayWrite, opened), Cause::kNoFile);
  EXPECT_FALSE(fs::exists(root_ / "made"));
}

// The file at one path may have been another one before, which has a number of its own.
TEST_F(ExportsTest, TheOldestAreForgottenWhicheverOfThemWasReplaced) {
  constexpr size_t kKnown = 3;
  Exports few(1, kKnown);
  ASSERT_TRUE(few.add("few", root_.string(), kMayRead).ok());
  const auto open_few = [&](const std::string& name) {
    uint64_t file = 0, size_bytes = 0;
    EXPECT_EQ(open_now(few, "few/" + name, kMayRead, file, size_bytes), Cause::kNone);
    return file;
  };
  const auto is_known = [&](uint64_t file) {
    OpenFilePointer opened;
    return use_now(few, file, kMayRead, opened) == Cause::kNone;
  };
  write("session", "old");
  OpenFilePointer held;
  const uint64_t before = open_few("session");
  ASSERT_EQ(use_now(few, before, kMayRead, held), Cause::kNone);
  replace("session", "new");
  const uint64_t after = open_few("session");
  ASSERT_NE(after, before);
  held = nullptr;
  // The new one goes first, then the old one, of the same path.
  OpenFilePointer used;
  ASSERT_EQ(use_now(few, before, kMayRead, used), Cause::kNone) << "it is still open";
  used = nullptr;
  std::vector<uint64_t> others;
  for (size_t i = 0; i <= kKnown; ++i) {
    write("other" + std::to_string(i), "");
    others.push_back(open_few("other" + std::to_string(i)));
  }
  EXPECT_FALSE(is_known(before));
  EXPECT_FALSE(is_known(after));
  EXPECT_TRUE(is_known(others.back()));
}

TEST_F(ExportsTest, WhereNoDescriptorIsLeftIdleFilesMakeRoomAndThenItIsTooMuch) {
  write("one", "1");
  write("two", "2");
  const uint64_t one = open("one");
  OpenFilePointer held;
  const NoMoreDescriptors all;
  const uint64_t two = open("two");  // in the place of the other one
  ASSERT_EQ(use_now(exports_, two, kMayRead, held), Cause::kNone);
  OpenFilePointer opened;
  EXPECT_EQ(use_now(exports_, one, kMayRead, opened), Cause::kTooMuch);
  uint64_t file = 0, size_bytes = 0;
  EXPECT_EQ(open_now(exports_, "kv/one", kMayRead, file, size_bytes), Cause::kTooMuch);
  held = nullptr;
  EXPECT_EQ(read(one), "1");
}

/// The file that was unused longest is closed first, and its file system does not answer.
TEST_F(ExportsTest, WhereNoDescriptorIsLeftAFileThatCannotBeClosedHoldsUpNoOtherFolder) {
  const fs::path slow = root_ / "slow";
  fs::create_directories(slow);
  std::ofstream(slow / "one") << "1";
  write("idle", "");
  write("wanted", "2");
  ASSERT_TRUE(exports_.add("slow", slow.string(), kMayRead).ok());
  uint64_t file = 0, size_bytes = 0;
  ASSERT_EQ(open_now(exports_, "slow/one", kMayRead, file, size_bytes), Cause::kNone);
  OpenFilePointer opened;
  ASSERT_EQ(use_now(exports_, file, kMayRead, opened), Cause::kNone);
  held_descriptor = opened->cached.get();
  opened = nullptr;
  open("idle");
  std::vector<Cause> answers;
  {
    const NoMoreDescriptors all;
    for (int question = 0; question < 2; ++question)
      exports_.open({1, 2}, "kv/wanted", kMayRead,
                    [&](Cause cause, uint64_t, uint64_t) { answers.push_back(cause); });
    EXPECT_TRUE(braid::test::eventually(
        [&] {
          exports_.step();
          return answers.size() == 2;
        },
        std::chrono::seconds(10)));
    held_descriptor = -1;
    settle(exports_);
  }
  EXPECT_EQ(answers, std::vector<Cause>(2, Cause::kNone));
}

/// A listener whose connections cannot be accepted stays readable: whoever sleeps until it is would
/// not sleep at all.
TEST(TransferDirectory, RestsWhileThisProcessMayOpenNoDescriptor) {
  const fabric::Secret none;
  auto server = DirectoryServer::open(
                    {"127.0.0.1", 0}, "", none,
                    {{}, [] { return Description(); }, [](const auto&) { return std::string(); }})
                    .value();
  const auto is_readable = [&] {
    pollfd awaited{server->descriptor(), POLLIN, 0};
    return poll(&awaited, 1, 0) == 1;
  };
  uint64_t now_ns = monotonic_ns();
  const Descriptor client = connect_to(server->at(), now_ns + 5'000'000'000).value();
  {
    const NoMoreDescriptors all;
    for (int turn = 0; turn < 3; ++turn) {
      server->step(now_ns);
      EXPECT_FALSE(is_readable());
      ASSERT_LE(server->next_deadline_ns(), now_ns + DirectoryServer::kPauseNs);
      now_ns = server->next_deadline_ns();
    }
  }
  const auto question = frame(encode(Question{}, none));
  ASSERT_EQ(send(client.get(), question.data(), question.size(), MSG_NOSIGNAL),
            static_cast<ssize_t>(question.size()));
  for (int turn = 0; turn < 3; ++turn) server->step(now_ns);
  EXPECT_EQ(server->statistics().answered, 1u);
}

}  // namespace
}  // namespace braid::transfer
