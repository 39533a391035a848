// A process that posts messages to a domain of this one over shm (caller.cpp).
#pragma once

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <string>

#include "fabric/domain.h"
#include "fabric/order.h"
#include "fabric/shm_files.h"

namespace braid::fabric::test {

/// Killed at the end, and with the test.
class Caller {
 public:
  Caller(Bytes address, const char* ending, int times = 1) {
    const std::string to = to_hex({address.begin(), address.end()});
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
  void remove_files() const { remove_files_of(started_); }
  /// Until it has asked for a connection, or has ended; one that leaves: until it has left.
  void wait_for_word() const {
    for (char byte = 0; byte != '\n';)
      if (read(output_, &byte, sizeof byte) != sizeof byte) return;
  }
  /// Whether wait_for_word would not wait.
  bool has_said_more() const {
    pollfd word{output_, POLLIN, 0};
    return poll(&word, 1, 0) == 1;
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

}  // namespace braid::fabric::test
