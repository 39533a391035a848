// `braid compare`: a user's own command natively and under braid, in turns: times, copies, and why
// some stayed native.
#include <fmt/core.h>
#include <fmt/ranges.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "base/try.h"
#include "preload/summary.h"
#include "tools/commands.h"
#include "tools/in_child.h"
#include "tools/locate.h"
#include "tools/numbers.h"
#include "tools/program_file.h"
#include "tools/readings.h"

namespace braid::tools {
namespace {

namespace fs = std::filesystem;
using multipath::CopyCount;
using multipath::Verdict;
using Words = std::vector<std::string>;

constexpr int kInterrupted = 128 + SIGINT;

struct CompareRequest {
  int turns = 3;
};

/// What one side's runs were like.
struct Side {
  Readings times_s;
  std::vector<int> exit_codes;

  bool operator==(const Side& other) const { return exit_codes == other.exit_codes; }
  bool has_failed() const {
    return std::any_of(exit_codes.begin(), exit_codes.end(), [](int code) { return code != 0; });
  }
};

// A folder for the reports of one run's processes, gone with the object.
class ReportFolder {
 public:
  ReportFolder() {
    std::string name = parent() + "/braid-compare-XXXXXX";
    if (mkdtemp(name.data()) != nullptr) path_ = name;
  }
  ~ReportFolder() {
    std::error_code ignored;
    if (!path_.empty()) fs::remove_all(path_, ignored);
  }
  ReportFolder(const ReportFolder&) = delete;
  ReportFolder& operator=(const ReportFolder&) = delete;

  const fs::path& path() const { return path_; }  // empty: there is none
  static std::string parent() {
    const char* const chosen = std::getenv("TMPDIR");
    return chosen != nullptr && *chosen != '\0' ? chosen : "/tmp";
  }

 private:
  fs::path path_;
};

// As a shell reports it.
int exit_code_of(int status) {
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

std::atomic<pid_t> running{0};           // the child; 0: none
volatile std::sig_atomic_t ended_by{0};  // a signal that was meant for this process

void pass_on(int signal) {
  ended_by = signal;
  if (const pid_t child = running.load()) kill(child, signal);
}

// Ctrl-C is for the program. What ends this process ends the program too, and this process goes on
// until its folder is removed.
class SignalsWhileRunning {
 public:
  SignalsWhileRunning() {
    for (size_t i = 0; i < std::size(kSignals); ++i) {
      struct sigaction action {};
      action.sa_handler = kSignals[i] == SIGINT || kSignals[i] == SIGQUIT ? SIG_IGN : pass_on;
      sigaction(kSignals[i], nullptr, &before_[i]);
      if (before_[i].sa_handler != SIG_IGN) sigaction(kSignals[i], &action, nullptr);
    }
  }
  ~SignalsWhileRunning() { restore(); }
  SignalsWhileRunning(const SignalsWhileRunning&) = delete;
  SignalsWhileRunning& operator=(const SignalsWhileRunning&) = delete;

  void restore() const {
    for (size_t i = 0; i < std::size(kSignals); ++i) sigaction(kSignals[i], &before_[i], nullptr);
  }

 private:
  static constexpr int kSignals[] = {SIGINT, SIGQUIT, SIGTERM, SIGHUP};
  struct sigaction before_[std::size(kSignals)] = {};
};

[[noreturn]] void become_braid(const Words& words) {
  const std::string braid = install_root() / "bin" / "braid";
  std::vector<char*> all = {const_cast<char*>(braid.c_str())};
  for (const std::string& word : words) all.push_back(const_cast<char*>(word.c_str()));
  all.push_back(nullptr);
  execv(braid.c_str(), all.data());
  _exit(kRunFailed);
}

Result<int> run_words(const Words& words) {
  const WaitableChildren waitable;
  const SignalsWhileRunning signals;
  const pid_t child = fork();
  if (child < 0) return Status::error(fmt::format("no process can be made: {}", strerror(errno)));
  if (child == 0) {
    waitable.restore();
    signals.restore();
    if (ended_by != 0) _exit(128 + ended_by);  // it came while pass_on was still this child's
    become_braid(words);
  }
  running = child;
  if (ended_by != 0) kill(child, ended_by);  // it came before there was a child to pass it on to
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) continue;
  running = 0;
  return ended_by == 0 ? exit_code_of(status) : 128 + ended_by;
}

Status run_once(const Words& options, const Words& more, const Words& program, Side& side) {
  Words words = {"run"};
  words.insert(words.end(), options.begin(), options.end());
  words.insert(words.end(), more.begin(), more.end());
  words.emplace_back("--");
  words.insert(words.end(), program.begin(), program.end());
  const auto begin = std::chrono::steady_clock::now();
  const auto ended = run_words(words);
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - begin;
  if (!ended.ok()) return ended.status();
  if (ended.value() == kRunFailed)  // it has said why, unless that is the program's own code
    return Status::error(fmt::format("nothing was compared: a run ended with {}", kRunFailed));
  if (ended.value() == kInterrupted || ended_by != 0)
    return Status::error("nothing was compared: interrupted");
  side.times_s.values.push_back(elapsed.count());
  side.exit_codes.push_back(ended.value());
  return {};
}

// A verdict that has this name; none of a braid of another version.
std::optional<Verdict> verdict_of(const std::string& name) {
  for (int i = 0; i < multipath::kVerdictCount; ++i)
    if (name == verdict_name(static_cast<Verdict>(i))) return static_cast<Verdict>(i);
  return std::nullopt;
}

// Each process has left a file with its statistics.
preload::CopyTotals read_totals(const fs::path& folder) {
  preload::CopyTotals totals;
  std::error_code gone;  // whatever the program has done to it
  for (const auto& file : fs::directory_iterator(folder, gone)) {
    std::ifstream in(file.path());
    const auto report = nlohmann::json::parse(in, nullptr, false);
    if (!report.is_object() || !report.contains("braid")) continue;
    for (const auto& [entry, outcomes] : report["braid"]["entry_points"].items())
      for (const auto& [name, count] : outcomes.items())
        if (const auto verdict = verdict_of(name))
          totals.add(*verdict, CopyCount{count.value("calls", uint64_t{0}),
                                         count.value("bytes", uint64_t{0})});
  }
  return totals;
}

std::string codes_of(const Side& side) {
  return fmt::format("{}", fmt::join(side.exit_codes, ", "));
}

void print_text(void* file, const char* text, size_t size_bytes) {
  std::fwrite(text, 1, size_bytes, static_cast<std::FILE*>(file));
}

void show(const Side& native, const Side& braided, const preload::CopyTotals& totals) {
  fmt::print("{:<14}{:>24}{:>24}{:>9}\n", "", "natively", "under braid", "ratio");
  fmt::print("{:<14}{:>24}{:>24}{:>8.2f}x\n", "seconds", native.times_s.text(2),
             braided.times_s.text(2), native.times_s.median() / braided.times_s.median());
  fmt::print("{:<14}{:>24}{:>24}\n", "exit code", codes_of(native), codes_of(braided));
  fmt::print("\n{:<18}{:>12}{:>20}\n", "outcome", "copies", "bytes");
  for (size_t i = 0; i < totals.by_verdict.size(); ++i)
    if (const CopyCount& count = totals.by_verdict[i]; count.calls != 0)
      fmt::print("{:<18}{:>12}{:>20}\n", verdict_name(static_cast<Verdict>(i)), count.calls,
                 count.bytes);
  char buffer[256];
  TextWriter out(buffer, print_text, stdout);
  out << "In the last turn ";
  write_summary(totals, out);
  out << "\n";
}

// Neither side always goes first: what one leaves in caches, the other finds.
Status measure(const CompareRequest& request, const Words& options, const Words& program,
               Side& native, Side& braided, preload::CopyTotals& totals) {
  for (int turn = 0; turn < request.turns; ++turn) {
    const ReportFolder reports;
    if (reports.path().empty())
      return Status::error("no folder can be made in " + ReportFolder::parent(),
                           "Set TMPDIR to one that can be written to");
    const Words counted = {"--stats", "json", "--stats-file", reports.path() / "%p"};
    for (int side = 0; side < 2; ++side)
      BRAID_TRY((side + turn) % 2 == 0 ? run_once(options, {"--native"}, program, native)
                                       : run_once(options, counted, program, braided));
    totals = read_totals(reports.path());
  }
  return {};
}

int compare(const CompareRequest& request, const Words& options, const Words& program) {
  if (program.empty() || program[0].empty()) {
    // Behind an option, a word may be its value.
    const bool is_word_first = !options.empty() && !options[0].starts_with("-");
    return fail(no_program("compare", is_word_first ? options : Words()));
  }
  if (const int error = find_program(program[0]).error; error != 0)
    return fail(cannot_start(program[0], error));
  for (const std::string& option : options)
    for (const char* own : {"--stats", "--stats-file", "--native", "--best-effort"})
      if (option == own || option.starts_with(std::string(own) + "="))
        return fail(Status::error(std::string(own) + " is for compare itself to set",
                                  "Leave it out; --log and --stats-signal show more"));
  Side native, braided;
  preload::CopyTotals totals;
  const Status status = measure(request, options, program, native, braided, totals);
  if (!status.ok()) return fail(status);
  show(native, braided, totals);
  if (native != braided)
    return fail(Status::error("the program did not end under braid as it does natively"));
  if (!native.has_failed()) return 0;
  return fail(Status::error("the program has failed, on both sides alike",
                            "What failed may have copied less: mend it, and compare again"));
}

}  // namespace

void add_compare_command(CLI::App& app, const std::vector<std::string>& program, int& exit_code) {
  CLI::App* command = app.add_subcommand("compare",
                                         "run a program natively and under braid, in turns: times, "
                                         "copies, and why some stayed native");
  auto request = std::make_shared<CompareRequest>();
  command->add_option("--turns", request->turns, "runs of each side")
      ->type_name("N")
      ->check(between(1, 1'000'000));
  show_program_in_usage(*command);
  command->footer(
      "The other options are those of braid run.\n"
      "On an emulated server (--server) the copies are what counts: time is virtual there.");
  command->allow_extras();
  command->callback(
      [=, &program, &exit_code] { exit_code = compare(*request, command->remaining(), program); });
}

}  // namespace braid::tools
