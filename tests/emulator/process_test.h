// Runs a piece of a test in a child process that has not opened the driver yet.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <functional>
#include <string>
#include <thread>

namespace braid::emulator_test {

struct ChildResult {
  int status = -1;     ///< exit code; 128 + signal; -1: it hung
  std::string output;  ///< what it returned
};

/// `work` runs in a fork and returns what the parent gets; the child then leaves by `exit(code)`.
inline ChildResult in_child(const std::function<std::string()>& work, int code = 0) {
  int ends[2];
  EXPECT_EQ(pipe(ends), 0);
  const pid_t child = fork();
  if (child == 0) {
    const std::string output = work();
    [[maybe_unused]] const ssize_t written = write(ends[1], output.data(), output.size());
    std::exit(code);
  }
  close(ends[1]);
  fcntl(ends[0], F_SETFL, O_NONBLOCK);
  ChildResult result;
  char buffer[4096];
  for (int hundredths = 0; hundredths < 6000; ++hundredths) {
    ssize_t size = 0;
    while ((size = read(ends[0], buffer, sizeof(buffer))) > 0)
      result.output.append(buffer, static_cast<size_t>(size));
    int status = 0;
    if (waitpid(child, &status, WNOHANG) == child) {
      while ((size = read(ends[0], buffer, sizeof(buffer))) > 0)
        result.output.append(buffer, static_cast<size_t>(size));
      result.status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
      break;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  if (result.status == -1) {
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
  }
  close(ends[0]);
  return result;
}

}  // namespace braid::emulator_test
