#include "tests/support/child.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <sstream>
#include <stdexcept>

namespace braid::test {
namespace {

constexpr const char* kStatisticsStart = R"({"braid":)";

std::map<std::string, std::string> environment_with(const Environment& changes) {
  std::map<std::string, std::string> all;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text = *entry;
    const size_t equals = text.find('=');
    if (!text.starts_with("BRAID_")) all[text.substr(0, equals)] = text.substr(equals + 1);
  }
  all["XDG_CACHE_HOME"] = "/nonexistent";  // what the developer has tuned is not under test
  for (const auto& [name, value] : changes)
    if (value.empty())
      all.erase(name);
    else
      all[name] = value;
  return all;
}

[[noreturn]] void become(const std::vector<std::string>& words, const Environment& environment) {
  clearenv();
  for (const auto& [name, value] : environment) setenv(name.c_str(), value.c_str(), 1);
  std::vector<char*> arguments;
  for (const std::string& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  execvp(arguments[0], arguments.data());
  _exit(99);
}

void read_both(int output, int errors, ChildResult& result) {
  pollfd ends[] = {{output, POLLIN, 0}, {errors, POLLIN, 0}};
  std::string* texts[] = {&result.output, &result.errors};
  char buffer[65536];
  while (ends[0].fd >= 0 || ends[1].fd >= 0) {
    if (poll(ends, 2, -1) < 0) return;
    for (int index = 0; index < 2; ++index) {
      if (ends[index].fd < 0 || ends[index].revents == 0) continue;
      const ssize_t got = read(ends[index].fd, buffer, sizeof buffer);
      if (got > 0)
        texts[index]->append(buffer, static_cast<size_t>(got));
      else
        ends[index].fd = -1;
    }
  }
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

}  // namespace

Environment waiting(Environment more) {
  more.insert({{"BRAID_OPENING", "wait"}, {"BRAID_THRESHOLD", "4M"}});
  return more;
}

ChildResult run_child(const std::vector<std::string>& words, const Environment& changes) {
  int output[2];
  int errors[2];
  if (pipe2(output, O_CLOEXEC) != 0 || pipe2(errors, O_CLOEXEC) != 0)
    throw std::runtime_error("no pipe");
  const Environment environment = environment_with(changes);
  const pid_t child = fork();
  if (child == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    dup2(output[1], STDOUT_FILENO);
    dup2(errors[1], STDERR_FILENO);
    become(words, environment);
  }
  close(output[1]);
  close(errors[1]);
  ChildResult result;
  read_both(output[0], errors[0], result);
  close(output[0]);
  close(errors[0]);
  int status = 0;
  waitpid(child, &status, 0);
  if (WIFEXITED(status)) result.exit_code = WEXITSTATUS(status);
  if (WIFSIGNALED(status)) result.signal = WTERMSIG(status);
  return result;
}

std::vector<nlohmann::json> ChildResult::statistics() const {
  std::vector<nlohmann::json> all;
  for (const std::string& line : lines_of(errors))
    if (line.starts_with(kStatisticsStart)) all.push_back(nlohmann::json::parse(line).at("braid"));
  return all;
}

std::string ChildResult::other_errors() const {
  std::string text;
  for (const std::string& line : lines_of(errors))
    if (!line.starts_with(kStatisticsStart)) text += line + "\n";
  return text;
}

Counted counted(const nlohmann::json& statistics, const std::string& entry_point,
                const std::string& verdict) {
  const auto& entries = statistics.at("entry_points");
  if (!entries.contains(entry_point) || !entries.at(entry_point).contains(verdict)) return {};
  const auto& count = entries.at(entry_point).at(verdict);
  return {count.at("calls").get<uint64_t>(), count.at("bytes").get<uint64_t>()};
}

uint64_t path_bytes(const nlohmann::json& statistics) {
  uint64_t bytes = 0;
  for (const auto& path : statistics.at("paths")) bytes += path.at("bytes").get<uint64_t>();
  return bytes;
}

}  // namespace braid::test
