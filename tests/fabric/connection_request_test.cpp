// shm: the first message to a process asks it for a connection, and it opens and maps the asking
// endpoint's file when it looks. That file may be gone by then, and there may be no descriptor or
// no memory for it.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <functional>
#include <vector>

#include "fabric/calling_process.h"
#include "fabric/ofi/domain.h"
#include "fabric/other_library.h"

namespace braid::fabric {
namespace {

using test::Caller;

/// While it lives, this process has no more than it has, and may be given `more`.
class Limited {
 protected:
  Limited(decltype(RLIMIT_AS) what, rlim_t now, rlim_t more) : what_(what) {
    getrlimit(what_, &before_);
    const rlimit limit{now + more, before_.rlim_max};
    EXPECT_EQ(setrlimit(what_, &limit), 0);
  }
  ~Limited() { setrlimit(what_, &before_); }

 public:
  Limited(const Limited&) = delete;
  Limited& operator=(const Limited&) = delete;

 private:
  const decltype(RLIMIT_AS) what_;
  rlimit before_{};
};

class NoDescriptors : public Limited {
 public:
  NoDescriptors() : Limited(RLIMIT_NOFILE, first_free(), 0) {}
  static bool is_reached() { return first_free() == static_cast<rlim_t>(-1) && errno == EMFILE; }

 private:
  static rlim_t first_free() {
    const int file = open("/dev/null", O_RDONLY);
    if (file >= 0) close(file);
    return static_cast<rlim_t>(file);
  }
};

/// Enough for anything but a mapping of the size of an endpoint.
class NoMemory : public Limited {
 public:
  NoMemory() : Limited(RLIMIT_AS, mapped_bytes(), 4 << 20) {}
  static bool is_reached() {
    constexpr size_t kEndpointBytes = 16 << 20;
    void* const one = mmap(nullptr, kEndpointBytes, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (one != MAP_FAILED) munmap(one, kEndpointBytes);
    return one == MAP_FAILED;
  }

 private:
  static rlim_t mapped_bytes() {
    rlim_t pages = 0;
    std::ifstream("/proc/self/statm") >> pages;
    return pages * static_cast<rlim_t>(sysconf(_SC_PAGESIZE));
  }
};

class ConnectionRequestTest : public testing::Test {
 protected:
  void SetUp() override {
    auto opened = ofi::open_domain(ofi::shm_quirks(), "");
    ASSERT_TRUE(opened.ok()) << opened.status().message();
    domain_ = std::move(opened).value();
    ASSERT_TRUE(domain_->open_door().ok());  // as engines do
    region_ = domain_->add_region(buffer_, Access::kLocal).value();
    ASSERT_TRUE(domain_->post_receive(region_, buffer_, 1));
  }
  /// Of a process that asks for a connection, and has it.
  void expect_others_are_heard() {
    Caller caller(domain_->address(), "stays");
    int status = 0;
    bool is_heard = false, is_over = false;
    while (!is_over) {
      Completion come;
      if (domain_->poll({&come, 1}) == 1) {
        is_heard = come.event == Event::kReceived && come.ok && come.size_bytes == 100;
        EXPECT_TRUE(domain_->post_receive(region_, buffer_, 1));
      }
      is_over = caller.has_ended(status);
    }
    EXPECT_TRUE(is_heard);
    EXPECT_EQ(std::vector(buffer_.begin(), buffer_.begin() + 100),
              std::vector<std::byte>(100, std::byte{7}));
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
    std::fill(buffer_.begin(), buffer_.end(), std::byte{0});
  }

  /// How many messages come until then.
  int hear(const std::function<bool()>& until) {
    int heard = 0;
    for (Completion come; !until();) {
      if (domain_->poll({&come, 1}) == 0 || come.event != Event::kReceived) continue;
      EXPECT_TRUE(come.ok);
      EXPECT_TRUE(domain_->post_receive(region_, buffer_, 1));
      ++heard;
    }
    return heard;
  }
  int hear(int looks) {
    return hear([&] { return looks-- == 0; });
  }
  /// Two processes ask while this one is at the limit. It goes on with one that it knows, and with
  /// new ones later.
  template <typename Limit>
  void expect_that_it_goes_on_at() {
    int heard = 0, status = 0;
    Caller known(domain_->address(), "stays", 2);
    while (heard == 0) heard += hear(1);
    const Caller first(domain_->address(), "stays"), second(domain_->address(), "stays");
    first.wait_for_word();
    second.wait_for_word();
    {
      const Limit limit;
      EXPECT_TRUE(limit.is_reached());
      heard += hear([&] { return known.has_ended(status); }) + hear(kLooks);
    }
    heard += hear(kLooks);
    EXPECT_EQ(heard, 2) << "one was taken at the limit";
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
    expect_others_are_heard();
  }

  static constexpr int kLooks = 10'000;
  std::vector<std::byte> buffer_ = std::vector<std::byte>(4096);
  std::unique_ptr<Domain> domain_;
  uint32_t region_ = 0;
};

TEST_F(ConnectionRequestTest, OfAnEndpointThatWasClosed) {
  Caller caller(domain_->address(), "leaves");
  caller.wait_for_word();
  expect_others_are_heard();
}

/// libfabric's table has 256 places.
TEST_F(ConnectionRequestTest, OfMoreEndpointsThanThereArePlaces) {
  for (int turn = 0; turn < 2; ++turn) {
    Caller caller(domain_->address(), "leaves", 130);
    caller.wait_for_word();
    expect_others_are_heard();
  }
}

TEST_F(ConnectionRequestTest, OfAProcessThatWasKilled) {
  Caller caller(domain_->address(), "dies");
  caller.wait_for_word();
  expect_others_are_heard();
}

TEST_F(ConnectionRequestTest, OfAProcessWhoseFilesWereRemoved) {
  Caller caller(domain_->address(), "dies");
  caller.wait_for_word();
  caller.remove_files();
  expect_others_are_heard();
}

TEST_F(ConnectionRequestTest, AreAnsweredWhereAnotherBraidLibraryOfTheProcessHasEngines) {
  const test::OtherLibrary other("shm");
  expect_that_it_goes_on_at<NoDescriptors>();
  Caller caller(domain_->address(), "dies");
  caller.wait_for_word();
  caller.remove_files();
  expect_others_are_heard();
}

TEST_F(ConnectionRequestTest, OfMoreThanThereAreDescriptorsFor) {
  expect_that_it_goes_on_at<NoDescriptors>();
}

TEST_F(ConnectionRequestTest, OfMoreThanThereIsMemoryFor) { expect_that_it_goes_on_at<NoMemory>(); }

}  // namespace
}  // namespace braid::fabric
