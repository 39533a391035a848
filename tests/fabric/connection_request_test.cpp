// shm: the first message to a process asks it for a connection, and it opens the asking endpoint's
// file when it looks. That file may be gone by then.
#include <gtest/gtest.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <string>
#include <vector>

#include "fabric/ofi/domain.h"
#include "fabric/order.h"
#include "fabric/shm_files.h"

namespace braid::fabric {
namespace {

/// Another process (caller.cpp); killed at the end, and with the test.
class Caller {
 public:
  Caller(Bytes address, const char* ending, int times = 1) {
    const std::string to = test::to_hex({address.begin(), address.end()});
    const std::string so_often = std::to_string(times);
    std::array<int, 2> ends{};
    EXPECT_EQ(pipe(ends.data()), 0);
    process_ = fork();
    if (process_ == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      dup2(ends[1], STDOUT_FILENO);
      execl(BRAID_FABRIC_CALLER, BRAID_FABRIC_CALLER, to.c_str(), ending, so_often.c_str(),
            nullptr);
      _exit(127);
    }
    started_ = process_;
    close(ends[1]);
    output_ = ends[0];
  }
  ~Caller() {
    if (process_ > 0) kill(process_, SIGKILL);
    if (process_ > 0) waitpid(process_, nullptr, 0);
    close(output_);
    remove_files();
  }
  Caller(const Caller&) = delete;
  Caller& operator=(const Caller&) = delete;

  /// What it has in /dev/shm.
  void remove_files() const { test::remove_files_of(started_); }
  /// Until it has said that it has left, or has ended.
  void wait_for_word() const {
    char byte = 0;
    (void)!read(output_, &byte, sizeof byte);
  }
  bool has_ended(int& status) {
    if (waitpid(process_, &status, WNOHANG) != process_) return false;
    process_ = -1;
    return true;
  }

 private:
  pid_t process_ = -1;  // until it has been waited for
  pid_t started_ = -1;
  int output_ = -1;
};

class ConnectionRequestTest : public testing::Test {
 protected:
  void SetUp() override {
    auto opened = ofi::open_domain(ofi::shm_quirks(), "");
    ASSERT_TRUE(opened.ok()) << opened.status().message();
    domain_ = std::move(opened).value();
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

}  // namespace
}  // namespace braid::fabric
