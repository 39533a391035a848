#include "tools/in_child.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>

namespace braid::tools {
namespace {

constexpr int kRefused = 1;

void write_all(int to, const std::string& text) {
  for (size_t at = 0; at < text.size();) {
    const ssize_t written = write(to, text.data() + at, text.size() - at);
    if (written <= 0) return;
    at += static_cast<size_t>(written);
  }
}

std::string read_all(int from) {
  std::string text;
  char part[4096];
  for (ssize_t got = 0; (got = read(from, part, sizeof part)) > 0;)
    text.append(part, static_cast<size_t>(got));
  return text;
}

[[noreturn]] void answer(int to, const Result<std::string>& result) {
  write_all(to, result.ok() ? result.value() : result.status().message());
  std::fflush(nullptr);
  _exit(result.ok() ? 0 : kRefused);
}

}  // namespace

Result<std::string> ask_in_child(const std::function<Result<std::string>()>& ask) {
  int ends[2];
  // What the child starts must not keep the pipe open.
  if (pipe2(ends, O_CLOEXEC) != 0) return Status::error("there is no pipe to a child process");
  std::fflush(nullptr);
  const WaitableChildren waitable;
  const pid_t child = fork();
  if (child == 0) answer(ends[1], ask());
  close(ends[1]);
  const std::string text = read_all(ends[0]);
  close(ends[0]);
  int status = 0;
  if (child < 0 || waitpid(child, &status, 0) != child || !WIFEXITED(status))
    return Status::error("a child process that looks for GPUs did not end well");
  if (WEXITSTATUS(status) != 0) return Status::error(text);
  return text;
}

}  // namespace braid::tools
