#include "bench/fabric/peer_program.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <nlohmann/json.hpp>
#include <optional>

namespace braid::bench {
namespace {

using nlohmann::json;

constexpr uint64_t kAnswerLimitNs = 60'000'000'000;
constexpr off_t kLastWordsBytes = 600;

[[noreturn]] void become(const PeerCommand& command, const std::string& role, int memory_file,
                         int questions, int answers, int errors) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  dup2(questions, STDIN_FILENO);
  dup2(answers, STDOUT_FILENO);
  dup2(errors, STDERR_FILENO);
  fcntl(memory_file, F_SETFD, 0);
  execlp(command.python.c_str(), command.python.c_str(), command.file.c_str(), role.c_str(),
         nullptr);
  std::fprintf(stderr, "%s: %s", command.python.c_str(), strerror(errno));
  _exit(127);
}

}  // namespace

Result<std::unique_ptr<PeerProcess>> PeerProcess::start(const PeerCommand& command,
                                                        const std::string& role, int memory_file) {
  signal(SIGPIPE, SIG_IGN);
  std::unique_ptr<PeerProcess> peer(new PeerProcess);
  peer->name_ = command.name + "'s " + role;
  int questions[2], answers[2];
  if (pipe2(questions, O_CLOEXEC) != 0) return Status::error("no pipe can be made");
  peer->questions_ = questions[1];
  if (pipe2(answers, O_CLOEXEC) != 0) return Status::error("no pipe can be made");
  peer->answers_ = answers[0];
  peer->errors_ = memfd_create("peer-errors", MFD_CLOEXEC);
  peer->process_ = fork();
  if (peer->process_ == 0)
    become(command, role, memory_file, questions[0], answers[1], peer->errors_);
  close(questions[0]);
  close(answers[1]);
  if (peer->process_ < 0) return Status::error(peer->name_ + " cannot be started");
  return peer;
}

PeerProcess::~PeerProcess() {
  if (process_ > 0) {
    kill(process_, SIGKILL);
    waitpid(process_, nullptr, 0);
  }
  for (const int file : {questions_, answers_, errors_})
    if (file >= 0) close(file);
}

Status PeerProcess::failure(const std::string& what) {
  const off_t end = lseek(errors_, 0, SEEK_END);
  const off_t from = std::max<off_t>(0, end - kLastWordsBytes);
  std::string words(static_cast<size_t>(end - from), '\0');
  const ssize_t got = pread(errors_, words.data(), words.size(), from);
  words.resize(got < 0 ? 0 : static_cast<size_t>(got));
  if (!words.empty() && words.back() == '\n') words.pop_back();
  return Status::error(name_ + " " + what + (words.empty() ? "" : ". Its last words:\n" + words));
}

Result<std::string> PeerProcess::read_line() {
  const uint64_t deadline_ns = now_ns() + kAnswerLimitNs;
  for (;;) {
    const size_t end = unread_.find('\n');
    if (end != std::string::npos) {
      std::string line = unread_.substr(0, end);
      unread_.erase(0, end + 1);
      return line;
    }
    const uint64_t at_ns = now_ns();
    pollfd look{answers_, POLLIN, 0};
    const int wait_ms =
        at_ns >= deadline_ns ? 0 : static_cast<int>((deadline_ns - at_ns) / 1'000'000) + 1;
    if (poll(&look, 1, wait_ms) == 0) return failure("gives no answer");
    char part[4096];
    const ssize_t got = read(answers_, part, sizeof part);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return failure("has ended");
    unread_.append(part, static_cast<size_t>(got));
  }
}

Result<json> PeerProcess::ask(const json& question) {
  const std::string line = question.dump() + "\n";
  if (::write(questions_, line.data(), line.size()) != static_cast<ssize_t>(line.size()))
    return failure("has ended");
  const auto answer = read_line();
  if (!answer.ok()) return answer.status();
  json said = json::parse(answer.value(), nullptr, false);
  if (!said.is_object()) return failure("answers what is no JSON object: " + answer.value());
  if (said.contains("error")) return failure("says: " + said["error"].dump());
  return said;
}

PeerProgram::Opened PeerProgram::open(const PeerCommand& command, const std::string& provider,
                                      Pattern pattern, const Buffers& buffers) {
  Opened opened;
  opened.waiver.name = command.name;
  std::unique_ptr<PeerProgram> program(new PeerProgram);
  program->name_ = command.name;
  json question = {{"do", "open"},
                   {"provider", provider},
                   {"pattern", kPatternNames[static_cast<size_t>(pattern)]},
                   {"memory_bytes", buffers.source().size()}};
  const auto open_side = [&](const char* role, int file,
                             std::unique_ptr<PeerProcess>& side) -> std::optional<json> {
    auto started = PeerProcess::start(command, role, file);
    if (!started.ok()) {
      opened.waiver.cause = started.status().message();
      return std::nullopt;
    }
    side = std::move(started).value();
    question["memory_file"] = file;
    const auto answer = side->ask(question);
    const std::pair<const char*, Waiver::Kind> waivers[] = {
        {"missing", Waiver::Kind::kMissing}, {"not_applicable", Waiver::Kind::kNotApplicable}};
    opened.waiver.cause = answer.ok() ? "" : answer.status().message();
    if (!answer.ok()) return std::nullopt;
    for (const auto& [word, kind] : waivers) {
      if (!answer.value().contains(word)) continue;
      opened.waiver.kind = kind;
      opened.waiver.cause = answer.value()[word].get<std::string>();
      return std::nullopt;
    }
    return answer.value();
  };
  const auto target = open_side("target", buffers.target_file(), program->target_);
  if (!target) return opened;
  question["target"] = target->value("address", json());
  if (open_side("writer", buffers.source_file(), program->writer_))
    opened.contender = std::move(program);
  return opened;
}

Status PeerProgram::prepare(const Load& load) {
  const auto awake = target_->ask({{"do", "serve"}});
  if (!awake.ok()) return awake.status();
  const auto ready = writer_->ask({{"do", "prepare"},
                                   {"size_bytes", load.size_bytes},
                                   {"count", load.count},
                                   {"depth", load.depth},
                                   {"pages_at_once", load.parts_at_once}});
  return ready.ok() ? Status() : ready.status();
}

Status PeerProgram::write(const Load&) {
  const auto done = writer_->ask({{"do", "write"}});
  return done.ok() ? Status() : done.status();
}

void PeerProgram::rest() { static_cast<void>(target_->ask({{"do", "rest"}})); }

}  // namespace braid::bench
