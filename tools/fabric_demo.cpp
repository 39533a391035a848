// `braid fabric demo`: what is done to the processes, and what came of it.
#include "tools/fabric_demo.h"

#include <fmt/core.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <random>

#include "fabric/library/report.h"
#include "tools/commands.h"
#include "tools/fabric_demo_parts.h"
#include "tools/in_child.h"
#include "tools/write_file.h"

namespace braid::tools {
namespace {

constexpr size_t kStoppedOwner = 1;
constexpr double kStopSeconds = 3;  // after 5 it would be given up, and have to connect anew
constexpr int kStartSeconds = 20;
constexpr int kEndSeconds = 10;

/// Shared with children, and zero.
void* map(size_t size_bytes) {
  void* memory =
      mmap(nullptr, size_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory != MAP_FAILED) return memory;
  std::perror("braid: mmap");
  std::exit(1);
}

template <typename Run>
pid_t start(const Run& run) {
  std::fflush(nullptr);
  const pid_t process = fork();
  if (process != 0) return process;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  _exit(run());
}

class Demo {
 public:
  explicit Demo(const FabricDemoOptions& options)
      : options_(options),
        shared_(*new (map(sizeof(DemoShared))) DemoShared()),  // owner: the mapping
        base_(static_cast<std::byte*>(map(kDemoBaseBytes)), kDemoBaseBytes) {
    std::mt19937_64 random(1);
    for (std::byte& byte : base_) byte = static_cast<std::byte>(random() >> 56);
  }

  int run() {
    for (size_t i = 0; i < kDemoOwners; ++i)
      owners_[i] = start([&] { return run_demo_owner(shared_, i, base_); });
    writer_ = start([&] { return run_demo_writer(shared_, base_, options_.corrupts); });
    const bool has_begun = wait_until([&] { return all_verified(0); }, kStartSeconds);
    if (has_begun) happen();
    const bool has_ended = end_children();
    if (!has_begun)
      return fail(Status::error("the writes have not begun", "Try `braid fabric doctor`"));
    print_table();
    const Status written = write_file(options_.svg_file, demo_svg(samples(), marks_));
    if (written.ok()) fmt::print("plot: {}\n", options_.svg_file);
    const int exit_code = judge(has_ended);
    return written.ok() ? exit_code : fail(written);
  }

 private:
  std::span<const DemoSample> samples() const {
    return std::span(shared_.samples).first(shared_.sample_count);
  }
  double seconds() const { return samples().empty() ? 0 : samples().back().seconds; }
  bool all_verified(uint64_t more_than) const {
    for (const DemoShared::Owner& owner : shared_.owners)
      if (owner.verified + owner.wrong <= more_than) return false;
    return true;
  }

  /// False: the limit has passed, or a child has ended.
  template <typename Until>
  bool wait_until(const Until& until, double limit_seconds) {
    const auto end =
        std::chrono::steady_clock::now() + std::chrono::duration<double>(limit_seconds);
    while (!until() && std::chrono::steady_clock::now() < end) {
      if (waitpid(-1, nullptr, WNOHANG) != 0) return false;
      show_progress();
      usleep(50'000);
    }
    return until();
  }
  void pass(double part) {
    wait_until([] { return false; }, part * options_.seconds);
  }
  void mark(const std::string& what) {
    marks_.push_back({seconds(), what});
    if (isatty(STDERR_FILENO) != 0) fmt::print(stderr, "\r{:5.1f} s  {:60}\n", seconds(), what);
  }

  void happen() {
    pass(0.25);
    shared_.kills_rail = true;
    mark(fmt::format("rail {} killed", kKilledRail));
    pass(0.25);
    kill(owners_[kStoppedOwner], SIGSTOP);
    mark(fmt::format("peer {} stopped", kStoppedOwner));
    const uint64_t others = shared_.owners[0].verified;
    pass(std::min(0.15, kStopSeconds / options_.seconds));
    other_went_on_ = shared_.owners[0].verified > others;
    kill(owners_[kStoppedOwner], SIGCONT);
    mark(fmt::format("peer {} continued", kStoppedOwner));
    const uint64_t stopped = shared_.owners[kStoppedOwner].verified;
    pass(0.35);
    // The limits of what it missed come first.
    stopped_went_on_ =
        wait_until([&] { return shared_.owners[kStoppedOwner].verified > stopped; }, kEndSeconds);
  }

  bool end_children() {
    shared_.is_ending = true;
    const bool writer_is_well = end(writer_);
    shared_.writer_ended = true;
    bool is_well = writer_is_well;
    for (const pid_t owner : owners_) is_well = end(owner) && is_well;
    return is_well;
  }
  static bool end(pid_t child) {
    const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(kEndSeconds);
    for (int status = 0; std::chrono::steady_clock::now() < limit; usleep(10'000))
      if (const pid_t ended = waitpid(child, &status, WNOHANG); ended != 0)
        return ended == child && status == 0;
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
    return false;
  }

  void show_progress() const {
    if (isatty(STDERR_FILENO) == 0) return;
    uint64_t verified = 0;
    for (const DemoShared::Owner& owner : shared_.owners) verified += owner.verified;
    fmt::print(stderr, "\r{:5.1f} of {} s, {} writes of {} MiB verified   ", seconds(),
               options_.seconds, verified, kDemoWriteBytes >> 20);
  }

  void print_table() const {
    if (isatty(STDERR_FILENO) != 0) fmt::print(stderr, "\r{:70}\r", "");
    const DemoSample end = samples().empty() ? DemoSample() : samples().back();
    fmt::print("{:6} {:12} {:>10} {:>10} {:>10}  {}\n", "rail", "address", "GB", "GB/s", "failures",
               "at the end");
    for (size_t rail = 0; rail < kDemoRails; ++rail) {
      uint64_t bytes = 0;
      std::string states;
      for (size_t owner = 0; owner < kDemoOwners; ++owner) {
        bytes += end.bytes[owner][rail];
        const auto state = static_cast<fabric::RailState>(end.states[owner][rail]);
        states += fmt::format("{}{} to peer {}", owner == 0 ? "" : ", ",
                              fabric::rail_state_name(state), owner);
      }
      const double gigabytes = static_cast<double>(bytes) / 1e9;
      fmt::print("{:<6} {:12} {:10.2f} {:10.3f} {:10}  {}\n", rail, demo_address(rail), gigabytes,
                 gigabytes / std::max(end.seconds, 1e-3), end.failures[rail], states);
    }
    fmt::print("{:6} {:>12} {:>10} {:>16} {:>12}\n", "peer", "verified", "given up",
               "quarantined, MiB", "wrong bytes");
    for (size_t i = 0; i < kDemoOwners; ++i) {
      const DemoShared::Owner& owner = shared_.owners[i];
      fmt::print("{:<6} {:12} {:10} {:16} {:12}\n", i, owner.verified.load(), owner.given_up.load(),
                 owner.quarantined.load() >> 20, owner.wrong.load());
    }
  }

  int judge(bool has_ended) const {
    uint64_t wrong = 0;
    for (const DemoShared::Owner& owner : shared_.owners) wrong += owner.wrong;
    if (wrong > 0) return fail(Status::error(fmt::format("{} bytes are wrong", wrong)));
    for (size_t owner = 0; owner < kDemoOwners; ++owner)
      if (samples().back().states[owner][kKilledRail] == 0)
        return fail(Status::error("nobody has noticed that a rail was killed"));
    if (!other_went_on_) return fail(Status::error("a stopped peer has stopped the other"));
    if (!stopped_went_on_) return fail(Status::error("the peer that went on gets no writes"));
    if (!has_ended) return fail(Status::error("a process did not end well"));
    fmt::print("every byte is right\n");
    return 0;
  }

  const FabricDemoOptions options_;
  DemoShared& shared_;
  std::span<std::byte> base_;
  std::array<pid_t, kDemoOwners> owners_{};
  const WaitableChildren waitable_;
  pid_t writer_ = 0;
  std::vector<DemoMark> marks_;
  bool other_went_on_ = false;
  bool stopped_went_on_ = false;
};

}  // namespace

int fabric_demo(const FabricDemoOptions& options) {
  const Status status = check_writable(options.svg_file);
  return status.ok() ? Demo(options).run() : fail(status);
}

}  // namespace braid::tools
