#include "preload/reporter.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <system_error>

#include "multipath/process_table.h"
#include "preload/descriptor.h"
#include "preload/process_path.h"
#include "preload/report.h"

namespace braid::preload {
namespace {

// In-flight transfers get this long to end before the statistics are shown at exit.
constexpr int kExitWaitMs = 500;

// The end of a process waits so long for a thread that is writing a report.
constexpr int kEndWaitMs = 100;

struct Settings {
  StatsFormat format;
  std::string file;               // empty: stderr
  std::string draft;              // what takes the file's place: each process has its own
  bool is_refused = false;        // nothing may take the file's place
  std::chrono::seconds interval;  // zero: none
  StatisticsSource reported;
};

struct Reporter {
  std::atomic<const Settings*> settings{nullptr};  // owned by the process, until its end
  std::atomic<pid_t> pid{0};
  // `braid run` became this process, and its user asked for text: there is a report of it, also
  // when there is nothing to tell. Not of its children.
  std::atomic<pid_t> expected{0};
  std::atomic<bool> has_ended{false};  // the report at exit has begun
  std::atomic<std::chrono::milliseconds>
      due{};  // the next report of an interval; 0: none was asked
  // A thread is using what follows. It is not on the stack: a signal handler may run on a stack of
  // 8 KiB, of which the kernel takes nearly half for the registers.
  std::atomic<bool> is_busy{false};
  multipath::PathCounts paths;
  std::array<multipath::RelayCount, multipath::kMostGpus> relays;
  size_t relay_count = 0;
  ProcessPath path;
  ProcessPath fresh;                // the new file, which takes the place of `path`
  char text[64 << 10];              // most reports are one write
  struct sigaction program_action;  // what the program did with the signal before
};

constinit Reporter reporter{};

void write_to(Descriptor& to, const Settings& settings) noexcept {
  char name[16];
  const ReportedProcess process{getpid(), multipath::program_name(name)};
  TextWriter out(reporter.text, write_to_descriptor, &to);
  write_report(settings.format, process, settings.reported.statistics(), reporter.paths,
               std::span(reporter.relays).first(reporter.relay_count), out);
}

// Whoever reads the file sees the old report or the new one, never half of one.
bool replace_file(const Settings& settings) noexcept {
  ProcessPath &path = reporter.path, &fresh = reporter.fresh;
  path.set(settings.file, getpid());
  struct stat facts {};
  if (settings.is_refused || (lstat(path.c_str(), &facts) == 0 && !S_ISREG(facts.st_mode)))
    return false;
  fresh.set(settings.draft, getpid());
  Descriptor file{open(fresh.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644)};
  if (file.number < 0) return false;
  write_to(file, settings);
  close(file.number);
  if (!file.failed && rename(fresh.c_str(), path.c_str()) == 0) return true;
  unlink(fresh.c_str());
  return false;
}

bool take_buffers(int wait_ms) noexcept {
  constexpr timespec kMillisecond{0, 1'000'000};
  while (reporter.is_busy.exchange(true, std::memory_order_acquire)) {
    if (wait_ms-- <= 0) return false;
    nanosleep(&kMillisecond, nullptr);
  }
  return true;
}

// A child made without fork's handlers (vfork, clone) shares the counts but not the copies.
bool has_report() noexcept {
  const Settings* settings = reporter.settings.load();
  if (settings == nullptr || reporter.pid.load() != getpid()) return false;
  return !settings->reported.statistics().empty() || reporter.expected.load() == getpid();
}

// `copies_ms` and `buffers_ms`: how long to wait for copies under way, and for another report.
void report(int copies_ms, int buffers_ms) noexcept {
  if (!has_report() || !take_buffers(buffers_ms)) return;
  const Settings& settings = *reporter.settings.load();
  reporter.paths.clear();
  reporter.relay_count = settings.reported.collect(copies_ms, reporter.paths, reporter.relays);
  Descriptor errors{STDERR_FILENO};
  if (settings.file.empty())
    write_to(errors, settings);
  else
    replace_file(settings);
  reporter.is_busy.store(false, std::memory_order_release);
}

void call_program_handler(int signal, siginfo_t* information, void* context) {
  const struct sigaction& action = reporter.program_action;
  if ((action.sa_flags & SA_SIGINFO) != 0)
    action.sa_sigaction(signal, information, context);
  else if (action.sa_handler != SIG_DFL && action.sa_handler != SIG_IGN)
    action.sa_handler(signal);
}

void on_signal(int signal, siginfo_t* information, void* context) {
  const int error = errno;
  report(0, 0);
  errno = error;
  call_program_handler(signal, information, context);
}

// A program that sets a handler of its own afterwards replaces this one, as it means to.
void listen_for(int signal) {
  struct sigaction before {};
  if (sigaction(signal, nullptr, &before) != 0 || before.sa_sigaction == on_signal) return;
  reporter.program_action = before;
  struct sigaction action {};
  action.sa_sigaction = on_signal;
  action.sa_flags = SA_SIGINFO | SA_RESTART | SA_ONSTACK;
  sigfillset(&action.sa_mask);
  sigaction(signal, &action, nullptr);
}

// The signal has the effect that it would have had: it waits until this returns.
void report_and_end(int signal) {
  const int error = errno;
  if (!reporter.has_ended.exchange(true)) report(0, kEndWaitMs);
  struct sigaction natural {};
  natural.sa_handler = SIG_DFL;
  sigaction(signal, &natural, nullptr);
  raise(signal);
  errno = error;
}

// Only where the signal would end the program: one that has a handler ends as it means to.
void report_before(int signal) {
  struct sigaction action {};
  if (sigaction(signal, nullptr, &action) != 0 || (action.sa_flags & SA_SIGINFO) != 0 ||
      action.sa_handler != SIG_DFL)
    return;
  action.sa_handler = report_and_end;
  action.sa_flags = SA_ONSTACK;
  sigfillset(&action.sa_mask);
  sigaction(signal, &action, nullptr);
}

// A program that has not loaded the driver when it ends never began to report.
void report_no_driver() noexcept {
  Descriptor errors{STDERR_FILENO};
  TextWriter out(reporter.text, write_to_descriptor, &errors);
  char name[16];
  out << "braid: process " << getpid() << " (" << multipath::program_name(name)
      << "): braid saw no CUDA driver in it. What its children copy, they report\n";
}

void listen_early() {
  constexpr std::string_view kVariable = "BRAID_STATS_SIGNAL";
  if (std::getenv(kVariable.data()) == nullptr) return;
  const auto options = read_options(
      [&](const char* name) { return name == kVariable ? std::getenv(name) : nullptr; });
  if (options.ok() && options.value().stats_signal != 0) listen_for(options.value().stats_signal);
}

// A link stays one: what it leads to is replaced.
std::string place_of(const std::string& file) {
  std::error_code missing;
  const std::filesystem::path place = std::filesystem::canonical(file, missing);
  return missing ? std::filesystem::absolute(file).string() : place.string();
}

// A new file takes its place. A log that standard error goes to would lose what it holds.
Status check_replaceable(const std::string& file) {
  constexpr const char* kRemedy = "Leave it out: statistics then go to stderr";
  const ProcessPath path(file, getpid());
  struct stat facts {};
  if (stat(path.c_str(), &facts) != 0) return {};
  if (!S_ISREG(facts.st_mode))
    return Status::error("BRAID_STATS_FILE: '" + file + "' is no regular file", kRemedy);
  for (const int output : {STDOUT_FILENO, STDERR_FILENO}) {
    struct stat other {};
    if (fstat(output, &other) == 0 && other.st_dev == facts.st_dev && other.st_ino == facts.st_ino)
      return Status::error("BRAID_STATS_FILE: '" + file + "' is where the output goes", kRemedy);
  }
  return {};
}

Status check_folder(const std::string& file, const std::string& draft) {
  const ProcessPath fresh(draft, getpid());
  const int descriptor = open(fresh.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
  if (descriptor < 0)
    return Status::error("BRAID_STATS_FILE: '" + file +
                         "' cannot be written: " + std::strerror(errno));
  close(descriptor);
  unlink(fresh.c_str());
  return {};
}

}  // namespace

// The environment is as `braid run` left it.
void expect_report() noexcept {
  listen_early();
  const char* started = std::getenv(kStartedVariable);
  const char* format = std::getenv("BRAID_STATS");
  if (started == nullptr || std::strtoll(started, nullptr, 10) != getpid() || format == nullptr ||
      std::strcmp(format, "text") != 0)
    return;
  reporter.expected.store(getpid());
  std::atexit(report_at_exit);
  std::at_quick_exit(report_at_exit);
}

Status start_reporting(const Options& options, const StatisticsSource& reported) {
  Status status;
  if (options.stats == StatsFormat::kNone) return status;
  auto settings = std::make_unique<Settings>(
      Settings{options.stats, options.stats_file, "", false,
               std::chrono::seconds(options.stats_interval_s), reported});
  if (!settings->file.empty()) {
    status = check_replaceable(settings->file);
    settings->is_refused = !status.ok();
    settings->file = place_of(settings->file);
    settings->draft = settings->file + ".%p.new";
    if (status.ok()) status = check_folder(settings->file, settings->draft);
  }
  reporter.pid.store(getpid());
  reporter.settings.store(settings.release());
  std::atexit(report_at_exit);
  std::at_quick_exit(report_at_exit);
  for (const int signal : {SIGTERM, SIGINT, SIGHUP}) report_before(signal);
  if (options.stats_signal != 0) listen_for(options.stats_signal);
  return status;
}

void report_at_exit() noexcept {
  if (reporter.settings.load() == nullptr && reporter.expected.load() == getpid() &&
      !reporter.has_ended.exchange(true))
    report_no_driver();
  if (!has_report() || reporter.has_ended.exchange(true)) return;
  report(kExitWaitMs, kExitWaitMs);
}

std::chrono::milliseconds report_when_due() noexcept {
  using std::chrono::milliseconds;
  const Settings* settings = reporter.settings.load();
  if (settings == nullptr || settings->interval.count() == 0) return milliseconds::max();
  const milliseconds interval = settings->interval;
  const auto now =
      std::chrono::ceil<milliseconds>(std::chrono::steady_clock::now().time_since_epoch());
  milliseconds due = reporter.due.load();
  if (now >= due && reporter.due.compare_exchange_strong(due, now + interval)) {
    if (due != milliseconds::zero()) report(0, 0);
    due = now + interval;
  }
  return std::max(due - now, milliseconds(1));
}

void forget_reports() noexcept {
  reporter.has_ended.store(false);
  reporter.is_busy.store(false);
  reporter.pid.store(getpid());
}

}  // namespace braid::preload
