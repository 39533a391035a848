// `braid tebench`: transfers, what they take, and whether their bytes are right.
#include <fmt/core.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <limits>
#include <mutex>
#include <system_error>
#include <thread>

#include "base/try.h"
#include "host/process_stat.h"
#include "tools/tebench.h"

namespace braid::tools {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::seconds kLimit{60};

double seconds_since(Clock::time_point begun) {
  return std::chrono::duration<double>(Clock::now() - begun).count();
}

double thread_cpu_seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) / 1e9;
}

/// Counts a scope as time beside what is measured.
class Aside {
 public:
  explicit Aside(Turn& turn)
      : turn_(turn), begun_(Clock::now()), cpu_begun_(thread_cpu_seconds()) {}
  ~Aside() {
    turn_.aside_s += seconds_since(begun_);
    turn_.aside_cpu_s += thread_cpu_seconds() - cpu_begun_;
  }
  Aside(const Aside&) = delete;
  Aside& operator=(const Aside&) = delete;

 private:
  Turn& turn_;
  const Clock::time_point begun_;
  const double cpu_begun_;
};

double process_cpu_seconds(int process) {
  double user = 0, system = 0;
  stat_fields(static_cast<uint32_t>(process), 14) >> user >> system;
  return (user + system) / static_cast<double>(sysconf(_SC_CLK_TCK));
}

std::byte pattern(uint64_t address, uint64_t salt) {
  return static_cast<std::byte>((address * 31 + address / 4096 + salt) * 7);
}

void set_operation(Requests& requests, Transfer::Operation operation) {
  for (Transfer::Request& each : requests) each.operation = operation;
}

std::byte* near(const Transfer::Request& request) { return static_cast<std::byte*>(request.local); }

/// Sums over threads, until all have ended.
struct Measuring {
  std::mutex mutex;
  Status wrong;
  std::atomic<bool> is_wrong = false;
  std::atomic<int> warming = 0;
  double longest_s = 0, cpu_begun = 0, aside_cpu_s = 0;
};

/// One thread's turns, for so long. Time aside does not count.
Turn take_turns(const TebenchOptions& options, double limit_s, Measuring& all,
                const std::function<Status(Turn&)>& work) {
  Turn turn;
  for (const auto begun = Clock::now(); seconds_since(begun) < limit_s && !all.is_wrong;) {
    const Status done = work(turn);
    if (!done.ok() && !all.is_wrong.exchange(true)) {
      const std::lock_guard lock(all.mutex);
      all.wrong = done;
    }
    if (options.request_interval_us > 0)
      std::this_thread::sleep_for(std::chrono::microseconds(options.request_interval_us));
  }
  return turn;
}

/// An owner has limited room for notifications that it has not taken: the limit slows this side
/// down.
Result<Transfer::Batch> submit(Bench& bench, const Requests& requests,
                               const std::optional<Transfer::Notification>& notification) {
  const auto begun = Clock::now();
  while (true) {
    Result<Transfer::Batch> batch = bench.engine->submit(requests, notification);
    if (batch.ok() || !notification || Clock::now() - begun > kLimit) return batch;
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
}

/// Of all requests: the earliest deadline. None: infinite.
double deadline_us(const Requests& requests) {
  double earliest_us = std::numeric_limits<double>::infinity();
  for (const Transfer::Request& each : requests)
    if (each.limit.count() > 0)
      earliest_us = std::min(earliest_us, static_cast<double>(each.limit.count()));
  return earliest_us;
}

}  // namespace

Status transfer_once(Bench& bench, const Requests& requests, Turn& turn) {
  std::optional<Transfer::Notification> notification;
  if (bench.options.notifi) {
    const std::string text = std::to_string(requests.front().address);
    const auto* bytes = reinterpret_cast<const std::byte*>(text.data());
    notification = {bench.segment, "benchmark", {bytes, bytes + text.size()}};
  }
  const auto begun = Clock::now();
  BRAID_LET(batch, submit(bench, requests, notification));
  BRAID_LET(has_ended, bench.engine->wait(batch, kLimit));
  const double took_us = seconds_since(begun) * 1e6;
  if (!has_ended) return Status::error("a batch has not ended within a minute");
  BRAID_LET(outcomes, bench.engine->outcomes(batch));
  BRAID_TRY(bench.engine->forget(batch));
  // The engine may have delivered the last slices of a request when its deadline passed.
  bool is_late = took_us > deadline_us(requests);
  for (const Transfer::Outcome& each : outcomes) {
    is_late = is_late || each.cause == Transfer::Cause::kDeadline;
    if (!each.is_done() && each.cause != Transfer::Cause::kDeadline)
      return Status::error(std::string("a request has failed: ") +
                           Transfer::cause_name(each.cause));
  }
  if (is_late)
    ++turn.moved.late;
  else
    turn.moved.tx_us.push_back(took_us);
  return {};
}

Status fill(const Bench& bench, const Requests& requests, uint64_t salt, Turn& turn) {
  const Aside aside(turn);
  std::vector<std::byte> bytes;
  for (const Transfer::Request& each : requests) {
    bytes.resize(each.size_bytes);
    for (uint64_t i = 0; i < each.size_bytes; ++i) bytes[i] = pattern(each.address + i, salt);
    BRAID_TRY(bench.memory->put(near(each), bytes.data(), each.size_bytes));
  }
  return {};
}

Status compare(const Bench& bench, const Requests& requests, uint64_t salt, Turn& turn) {
  const Aside aside(turn);
  std::vector<std::byte> bytes;
  for (const Transfer::Request& each : requests) {
    bytes.resize(each.size_bytes);
    BRAID_TRY(bench.memory->get(bytes.data(), near(each), each.size_bytes));
    for (uint64_t i = 0; i < each.size_bytes; ++i)
      if (bytes[i] != pattern(each.address + i, salt))
        return Status::error("WRONG BYTES: the first at " + std::to_string(each.address + i));
    turn.verified_bytes += each.size_bytes;
  }
  return {};
}

Status write_and_read_back(Bench& bench, Requests requests, Turn& turn) {
  static std::atomic<uint64_t> salt = 0;
  const uint64_t now = ++salt;
  set_operation(requests, Transfer::Operation::kWrite);
  BRAID_TRY(fill(bench, requests, now, turn));
  const uint64_t late_before = turn.moved.late;
  BRAID_TRY(transfer_once(bench, requests, turn));
  BRAID_TRY(fill(bench, requests, now + 1, turn));  // else what was written would still be here
  set_operation(requests, Transfer::Operation::kRead);
  BRAID_TRY(transfer_once(bench, requests, turn));
  if (turn.moved.late != late_before) return {};  // what is late has not moved all its bytes
  return compare(bench, requests, now, turn);
}

Status verify(Bench& bench, Requests requests, TebenchRow& row) {
  for (Transfer::Request& each : requests) each.limit = {};
  Turn turn;
  BRAID_TRY(write_and_read_back(bench, std::move(requests), turn));
  row.verified_bytes += turn.verified_bytes;
  return {};
}

double cpu_seconds(const Bench& bench) {
  rusage self{};
  getrusage(RUSAGE_SELF, &self);
  const auto sum = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) / 1e6;
  };
  const double target = bench.target_process == 0 ? 0 : process_cpu_seconds(bench.target_process);
  return sum(self.ru_utime) + sum(self.ru_stime) + target;
}

Status measure(Bench& bench, TebenchRow& row,
               const std::function<Status(int thread, Turn& turn)>& work) {
  Measuring all;
  all.warming = row.threads;
  row.by_thread.resize(static_cast<size_t>(row.threads));
  const auto run_thread = [&](int thread) {
    const auto own_work = [&](Turn& turn) { return work(thread, turn); };
    take_turns(bench.options, bench.options.warm_up, all, own_work);
    if (--all.warming == 0) {
      const std::lock_guard lock(all.mutex);
      all.cpu_begun = cpu_seconds(bench);
    }
    const auto begun = Clock::now();
    Turn turn = take_turns(bench.options, bench.options.duration, all, own_work);
    const double took_s = seconds_since(begun) - turn.aside_s;
    const std::lock_guard lock(all.mutex);
    all.longest_s = std::max(all.longest_s, took_s);
    all.aside_cpu_s += turn.aside_cpu_s;
    row.verified_bytes += turn.verified_bytes;
    row.by_thread[static_cast<size_t>(thread)] = std::move(turn.moved);
  };
  std::vector<std::thread> threads;
  try {
    for (int thread = 0; thread < row.threads; ++thread) threads.emplace_back(run_thread, thread);
  } catch (const std::system_error& error) {
    const std::lock_guard lock(all.mutex);
    all.is_wrong = true;
    all.wrong =
        Status::error(fmt::format("thread {} of {} cannot be started: {}", threads.size() + 1,
                                  row.threads, error.code().message()),
                      "Measure with fewer threads, or raise the limits of this user or container");
  }
  for (std::thread& thread : threads) thread.join();
  row.seconds = all.longest_s;
  row.cpu_seconds = cpu_seconds(bench) - all.cpu_begun - all.aside_cpu_s;
  row.has_targets_cpu = bench.target_process != 0;
  return all.wrong;
}

}  // namespace braid::tools
