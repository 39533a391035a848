#include "tools/tebench.h"

#include <fmt/core.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <fstream>
#include <memory>
#include <mutex>
#include <numeric>
#include <optional>
#include <sstream>
#include <thread>

#include "base/try.h"
#include "tools/commands.h"
#include "tools/tebench_plot.h"
#include "tools/transfer_options.h"

namespace braid::tools {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::seconds;

constexpr seconds kLimit{60};

double seconds_since(Clock::time_point begun) {
  return std::chrono::duration<double>(Clock::now() - begun).count();
}

double percentile(const std::vector<double>& sorted, double share) {
  if (sorted.empty()) return 0;
  const double rank = share * static_cast<double>(sorted.size() - 1);
  const auto index = static_cast<size_t>(rank);
  if (index + 1 >= sorted.size()) return sorted.back();
  const double fraction = rank - static_cast<double>(index);
  return sorted[index] * (1 - fraction) + sorted[index + 1] * fraction;
}

double process_cpu_seconds(int process) {
  std::ifstream file("/proc/" + std::to_string(process) + "/stat");
  std::string line;
  std::getline(file, line);
  const size_t after_name = line.rfind(')');
  if (after_name == std::string::npos) return 0;
  std::istringstream fields(line.substr(after_name + 1));
  std::string field;
  for (int number = 3; number <= 13; ++number) fields >> field;
  double user = 0, system = 0;
  fields >> user >> system;
  return (user + system) / static_cast<double>(sysconf(_SC_CLK_TCK));
}

/// What a row comes to.
struct Figures {
  double gbps = 0, average_us = 0, average_tx_us = 0, p50_us = 0, p99_us = 0, p999_us = 0,
         cpu_s_per_gb = 0;
};

Figures figures_of(const TebenchRow& row) {
  std::vector<double> sorted = row.tx_us;
  std::sort(sorted.begin(), sorted.end());
  const double count = std::max<double>(1, static_cast<double>(sorted.size()));
  const double gigabytes = static_cast<double>(row.bytes) / 1e9;
  Figures all;
  all.gbps = row.seconds > 0 ? gigabytes / row.seconds : 0;
  all.average_us = row.seconds * 1e6 * row.threads / count;
  all.average_tx_us = std::accumulate(sorted.begin(), sorted.end(), 0.0) / count;
  all.p50_us = percentile(sorted, 0.5);
  all.p99_us = percentile(sorted, 0.99);
  all.p999_us = percentile(sorted, 0.999);
  all.cpu_s_per_gb = gigabytes > 0 ? row.cpu_seconds / gigabytes : 0;
  return all;
}

// ---- The two sides ----

/// As Mooncake's: it says what initiators are to be started with.
int run_target(const Transfer::Options& options, const TebenchOptions& bench) {
  auto opened = Transfer::open(options);
  if (!opened.ok()) return fail(opened.status());
  const auto memory = opened.value().allocate_memory(bench.total_buffer_size, {true, true});
  if (!memory.ok()) return fail(memory.status());
  const auto name = opened.value().name();
  if (!name.ok()) return fail(name.status());
  fmt::print("To start initiators, run\n  braid tebench --target_seg_name={}\n", name.value());
  fmt::print("Press Ctrl-C to terminate\n");
  std::fflush(stdout);
  for (;;) pause();
}

/// A target of our own: its name comes through the pipe.
class OwnTarget {
 public:
  ~OwnTarget() {
    if (process_ <= 0) return;
    kill(process_, SIGKILL);
    waitpid(process_, nullptr, 0);
  }
  /// Before this process has threads.
  Result<std::string> start(const Transfer::Options& options, const TebenchOptions& bench) {
    int ends[2];
    if (pipe(ends) != 0) return Status::error("there is no pipe left");
    process_ = fork();
    if (process_ == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      dup2(ends[1], STDOUT_FILENO);
      Transfer::Options nameless = options;
      nameless.name.clear();
      nameless.listen.clear();
      _exit(run_target(nameless, bench));
    }
    close(ends[1]);
    std::string said;
    char letter = 0;
    while (said.find("Ctrl-C") == std::string::npos && read(ends[0], &letter, 1) == 1)
      said += letter;
    close(ends[0]);
    const size_t at = said.find("braid://");
    if (at == std::string::npos) return Status::error("the target did not start");
    return said.substr(at, said.find('\n', at) - at);
  }
  int process() const { return process_; }

 private:
  int process_ = -1;
};

Status run_initiator(const Transfer::Options& options, Bench& bench,
                     std::vector<TebenchRow>& rows) {
  BRAID_LET(engine, Transfer::open(options));
  bench.engine = &engine;
  BRAID_LET(segment, engine.open_segment(bench.options.target_seg_name, kLimit));
  bench.segment = segment;
  BRAID_LET(ranges, engine.ranges(segment));
  const auto largest =
      std::max_element(ranges.begin(), ranges.end(),
                       [](const auto& a, const auto& b) { return a.size_bytes < b.size_bytes; });
  if (largest == ranges.end())
    return Status::error("the target has registered no memory", "`braid serve` does");
  bench.target = largest->address;
  bench.size_bytes = std::min(largest->size_bytes, bench.options.total_buffer_size);
  BRAID_LET(memory, engine.allocate_memory(bench.size_bytes, {}));
  bench.local = static_cast<std::byte*>(memory.memory);
  print_head();
  std::optional<ThroughputPlot> plot;
  if (!bench.options.plot_file.empty()) plot.emplace(engine);
  BRAID_TRY(bench.options.pattern == "sweep" ? run_sweep(bench, rows)
                                             : run_pattern(bench, options, rows));
  return plot ? plot->write(bench.options.plot_file) : Status();
}

int run(const Transfer::Options& options, const TebenchOptions& wanted) {
  if (!wanted.json_file.empty())
    if (const Status no = check_writable(wanted.json_file); !no.ok()) return fail(no);
  if (wanted.target_seg_name.empty() && !wanted.has_own_target) return run_target(options, wanted);
  Bench bench;
  bench.options = wanted;
  OwnTarget target;
  if (wanted.has_own_target) {
    const auto name = target.start(options, wanted);
    if (!name.ok()) return fail(name.status());
    bench.options.target_seg_name = name.value();
    bench.target_process = target.process();
  }
  std::vector<TebenchRow> rows;
  const Status done = run_initiator(options, bench, rows);
  if (!wanted.json_file.empty()) {
    nlohmann::ordered_json json = nlohmann::ordered_json::array();
    for (const TebenchRow& row : rows) json.push_back(to_json(row));
    std::ofstream(wanted.json_file) << json.dump(1) << "\n";
  }
  return done.ok() ? 0 : fail(done);
}

}  // namespace

Result<double> transfer_once(Bench& bench, const std::vector<Transfer::Request>& requests) {
  const auto begun = Clock::now();
  BRAID_LET(batch, bench.engine->submit(requests));
  BRAID_LET(has_ended, bench.engine->wait(batch, kLimit));
  const double took_us = seconds_since(begun) * 1e6;
  if (!has_ended) return Status::error("a batch has not ended within a minute");
  BRAID_LET(outcomes, bench.engine->outcomes(batch));
  for (const Transfer::Outcome& each : outcomes)
    if (!each.is_done())
      return Status::error(std::string("a request has failed: ") +
                           Transfer::cause_name(each.cause));
  BRAID_TRY(bench.engine->forget(batch));
  return took_us;
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
               const std::function<Result<double>(int thread)>& work) {
  std::mutex mutex;
  Status wrong;
  std::atomic<bool> is_wrong = false;
  std::atomic<int> warming = row.threads;
  double longest_s = 0, cpu_begun = 0;
  const auto run_thread = [&](int thread) {
    const auto go_on = [&](double limit_s, std::vector<double>* samples) {
      for (const auto begun = Clock::now(); seconds_since(begun) < limit_s && !is_wrong;) {
        const Result<double> took_us = work(thread);
        if (took_us.ok() && samples != nullptr) samples->push_back(took_us.value());
        if (!took_us.ok() && !is_wrong.exchange(true)) {
          const std::lock_guard lock(mutex);
          wrong = took_us.status();
        }
        if (bench.options.request_interval_us > 0)
          std::this_thread::sleep_for(std::chrono::microseconds(bench.options.request_interval_us));
      }
    };
    go_on(bench.options.warm_up, nullptr);
    if (--warming == 0) {
      const std::lock_guard lock(mutex);
      cpu_begun = cpu_seconds(bench);
    }
    std::vector<double> samples;
    const auto begun = Clock::now();
    go_on(bench.options.duration, &samples);
    const double took_s = seconds_since(begun);
    const std::lock_guard lock(mutex);
    longest_s = std::max(longest_s, took_s);
    row.tx_us.insert(row.tx_us.end(), samples.begin(), samples.end());
  };
  std::vector<std::thread> threads;
  for (int thread = 0; thread < row.threads; ++thread) threads.emplace_back(run_thread, thread);
  for (std::thread& thread : threads) thread.join();
  row.seconds = longest_s;
  row.cpu_seconds = cpu_seconds(bench) - cpu_begun;
  row.has_targets_cpu = bench.target_process != 0;
  row.bytes = row.block_bytes * row.batch * row.tx_us.size();
  return wrong;
}

Status verify(Bench& bench, uint64_t block_bytes, uint64_t count, TebenchRow& row) {
  const uint64_t size_bytes = std::min(block_bytes * count, bench.size_bytes / 2);
  std::byte* written = bench.local;
  std::byte* read = bench.local + bench.size_bytes / 2;
  for (uint64_t i = 0; i < size_bytes; ++i) {
    written[i] = static_cast<std::byte>((i * 31 + i / 4096 + block_bytes + row.tx_us.size()) * 7);
    read[i] = ~written[i];
  }
  std::vector<Transfer::Request> out, back;
  for (uint64_t at = 0; at < size_bytes; at += block_bytes) {
    const uint64_t bytes = std::min(block_bytes, size_bytes - at);
    out.push_back(
        {bench.segment, Transfer::Operation::kWrite, written + at, bench.target + at, bytes});
    back.push_back(
        {bench.segment, Transfer::Operation::kRead, read + at, bench.target + at, bytes});
  }
  BRAID_TRY(transfer_once(bench, out).status());
  BRAID_TRY(transfer_once(bench, back).status());
  const auto wrong = std::mismatch(written, written + size_bytes, read);
  if (wrong.first != written + size_bytes)
    return Status::error("WRONG BYTES: the first at " + std::to_string(wrong.first - written));
  row.verified_bytes += size_bytes;
  return {};
}

void print_head() {
  fmt::print("{:<14}{:<8}{:<8}{:<12}{:<14}{:<14}{:<14}{:<14}{:<14}{:<14}{:<12}\n", "BlkSize (B)",
             "Batch", "Threads", "BW (GB/s)", "Avg Lat (us)", "Avg Tx (us)", "P50 Tx (us)",
             "P99 Tx (us)", "P999 Tx (us)", "Verified (B)", "CPU s/GB");
}

void print_row(const TebenchRow& row) {
  const Figures all = figures_of(row);
  fmt::print(
      "{:<14}{:<8}{:<8}{:<12.6f}{:<14.1f}{:<14.1f}{:<14.1f}{:<14.1f}{:<14.1f}{:<14}{:<12.3f}{}\n",
      row.block_bytes, row.batch, row.threads, all.gbps, all.average_us, all.average_tx_us,
      all.p50_us, all.p99_us, all.p999_us, row.verified_bytes, all.cpu_s_per_gb,
      row.what.empty() ? "" : "  " + row.what);
  std::fflush(stdout);
}

nlohmann::ordered_json to_json(const TebenchRow& row) {
  const Figures all = figures_of(row);
  return {{"what", row.what},
          {"block_bytes", row.block_bytes},
          {"batch", row.batch},
          {"threads", row.threads},
          {"transfers", row.tx_us.size()},
          {"seconds", row.seconds},
          {"gbps", all.gbps},
          {"average_latency_us", all.average_us},
          {"average_tx_us", all.average_tx_us},
          {"p50_tx_us", all.p50_us},
          {"p99_tx_us", all.p99_us},
          {"p999_tx_us", all.p999_us},
          {"verified_bytes", row.verified_bytes},
          {"cpu_s_per_gb", all.cpu_s_per_gb},
          {"cpu_of_both_sides", row.has_targets_cpu}};
}

void add_tebench_command(CLI::App& app, int& exit_code) {
  CLI::App* command = app.add_subcommand(
      "tebench", "reads and writes between two processes, measured as Mooncake's tebench does");
  auto engine = add_transfer_options(*command);
  auto wanted = std::make_shared<TebenchOptions>();
  command->add_option("--target_seg_name", wanted->target_seg_name,
                      "of the target; without one, and without --pair, this is the target");
  command->add_flag("--pair", wanted->has_own_target, "starts a target of its own on this host");
  command->add_option("--op_type", wanted->op_type, "read, write or mix")
      ->check(CLI::IsMember({"read", "write", "mix"}));
  command->add_flag("--check_consistency", wanted->check_consistency,
                    "writes, reads back and compares each transfer");
  command->add_option("--total_buffer_size", wanted->total_buffer_size, "of each side")
      ->transform(CLI::AsSizeValue(false));
  command->add_option("--start_block_size", wanted->start_block_size, "bytes of a request")
      ->transform(CLI::AsSizeValue(false));
  command->add_option("--max_block_size", wanted->max_block_size, "doubled up to here")
      ->transform(CLI::AsSizeValue(false));
  command->add_option("--start_batch_size", wanted->start_batch_size, "requests of a batch");
  command->add_option("--max_batch_size", wanted->max_batch_size, "doubled up to here");
  command->add_option("--duration", wanted->duration, "seconds of each row");
  command->add_option("--warm_up", wanted->warm_up, "seconds before each row");
  command->add_option("--start_num_threads", wanted->start_num_threads, "that submit");
  command->add_option("--max_num_threads", wanted->max_num_threads, "doubled up to here");
  command->add_option("--request_interval_us", wanted->request_interval_us,
                      "pause of a thread after each transfer");
  command->add_option("--deadline_us", wanted->deadline_us, "of each request; 0: none");
  command->add_option("--pattern", wanted->pattern, "sweep, r1-w8a8, weights, mixed or incast")
      ->check(CLI::IsMember({"sweep", "r1-w8a8", "weights", "mixed", "incast"}));
  command->add_option("--incast", wanted->incast, "engines that write to one target at once")
      ->check(CLI::Range(1, 64));
  command->add_option("--json", wanted->json_file, "the same figures")->type_name("FILE");
  command
      ->add_option("--plot", wanted->plot_file,
                   "throughput of each way over time, with their faults, as SVG")
      ->type_name("FILE");
  // Mooncake's, which choose what braid finds by itself.
  auto ignored = std::make_shared<std::vector<std::string>>();
  for (const char* name : {"--seg_name", "--seg_type", "--metadata_type", "--metadata_url_list",
                           "--rpc_server_port", "--xport_type", "--backend"})
    command->add_option(name, *ignored)->group("");
  command->callback([=, &exit_code] {
    if (!ignored->empty())
      fmt::print(stderr, "braid: flags that choose a way, a backend or a service are not obeyed\n");
    exit_code = run(*engine, *wanted);
  });
}

}  // namespace braid::tools
