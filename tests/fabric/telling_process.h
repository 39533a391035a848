// Another process, which tells one text and then does the same again and again.
#pragma once

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <functional>
#include <string>

#include "fabric/shm_files.h"

namespace braid::fabric::test {

/// Killed at the end, and with the test.
class TellingProcess {
 public:
  explicit TellingProcess(
      const std::function<std::string()>& begin,
      const std::function<void()>& go_on = [] { pause(); }) {
    std::array<int, 2> ends{};
    if (pipe(ends.data()) != 0) return;
    process_ = fork();
    if (process_ == 0) live(ends[1], begin, go_on);
    close(ends[1]);
    std::array<char, 1024> room{};
    const ssize_t size_bytes = read(ends[0], room.data(), room.size());
    if (size_bytes > 0) told_.assign(room.data(), static_cast<size_t>(size_bytes));
    close(ends[0]);
  }
  ~TellingProcess() {
    if (process_ <= 0) return;
    kill(process_, SIGKILL);
    waitpid(process_, nullptr, 0);
    remove_files_of(process_);  // only processes of its user would
  }
  TellingProcess(const TellingProcess&) = delete;
  TellingProcess& operator=(const TellingProcess&) = delete;

  /// Empty: it has ended before.
  const std::string& told() const { return told_; }

 private:
  [[noreturn]] static void live(int descriptor, const std::function<std::string()>& begin,
                                const std::function<void()>& go_on) {
    try {
      const std::string text = begin();
      prctl(PR_SET_PDEATHSIG, SIGKILL);  // only now: becoming another user clears it
      if (write(descriptor, text.data(), text.size()) < 0) _exit(1);
      close(descriptor);
      for (;;) go_on();
    } catch (...) {
      _exit(1);
    }
  }

  pid_t process_ = -1;
  std::string told_;
};

}  // namespace braid::fabric::test
