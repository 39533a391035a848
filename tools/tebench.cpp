#include "tools/tebench.h"

#include <fmt/core.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <memory>
#include <optional>
#include <thread>
#include <utility>

#include "base/try.h"
#include "tools/commands.h"
#include "tools/numbers.h"
#include "tools/tebench_plot.h"
#include "tools/transfer_options.h"
#include "tools/write_file.h"

namespace braid::tools {
namespace {

constexpr std::chrono::seconds kLimit{60};
constexpr std::chrono::seconds kEndLimit{5};  // for a target to end

Result<TransferMemory> open_memory(uint64_t size_bytes, const TebenchOptions& bench) {
  const std::optional<int> gpu =
      bench.is_on_gpu() ? std::optional<int>(bench.local_gpu_id) : std::nullopt;
  return TransferMemory::open(size_bytes, gpu);
}

// ---- The two sides ----

/// As Mooncake's: it says what initiators are to be started with.
Status be_target(const Transfer::Options& options, const TebenchOptions& bench) {
  hold_end_signals();
  BRAID_TRY(load_driver_if(options.gpu_memory));
  BRAID_LET(memory, open_memory(bench.total_buffer_size, bench));
  BRAID_LET(engine, Transfer::open(options));
  BRAID_TRY(memory.add_to(engine, {true, true}));
  BRAID_LET(name, engine.name());
  fmt::print("To start initiators, run\n  braid tebench --target_seg_name={} --seg_type={}\n", name,
             bench.seg_type);
  fmt::print("Press Ctrl-C to terminate\n");
  std::fflush(stdout);
  return serve_until_the_end(engine, 0);
}

/// A target of our own: its name comes through the pipe. It is to end by itself, since libfabric's
/// shared memory would outlive it.
class OwnTarget {
 public:
  ~OwnTarget() {
    if (process_ <= 0) return;
    kill(process_, SIGTERM);
    const auto limit = std::chrono::steady_clock::now() + kEndLimit;
    while (waitpid(process_, nullptr, WNOHANG) == 0) {
      if (std::chrono::steady_clock::now() > limit) kill(process_, SIGKILL);
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
  }
  /// Before this process has threads.
  Result<std::string> start(const Transfer::Options& options, const TebenchOptions& bench) {
    int ends[2];
    if (pipe(ends) != 0) return Status::error("there is no pipe left");
    process_ = fork();
    if (process_ == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      dup2(ends[1], STDOUT_FILENO);
      const Status done = be_target(beside(options), bench);
      _exit(done.ok() ? 0 : fail(done));
    }
    close(ends[1]);
    std::string said;
    char letter = 0;
    while (said.find("Ctrl-C") == std::string::npos && read(ends[0], &letter, 1) == 1)
      said += letter;
    close(ends[0]);
    const size_t at = said.find("braid://");
    if (at == std::string::npos) return Status::error("the target did not start" + how_it_ended());
    return said.substr(at, said.find_first_of(" \n", at) - at);
  }
  int process() const { return process_; }

 private:
  /// Of one that ended by itself it has said why.
  std::string how_it_ended() {
    int status = 0;
    waitpid(std::exchange(process_, -1), &status, 0);
    return WIFSIGNALED(status) ? fmt::format(": {}", strsignal(WTERMSIG(status))) : "";
  }

  int process_ = -1;
};

/// The part of the target's largest range that this initiator uses.
Status choose_range(Bench& bench) {
  BRAID_LET(ranges, bench.engine->ranges(bench.segment));
  const auto largest =
      std::max_element(ranges.begin(), ranges.end(),
                       [](const auto& a, const auto& b) { return a.size_bytes < b.size_bytes; });
  if (largest == ranges.end())
    return Status::error("the target has registered no memory", "`braid serve` does");
  const TebenchOptions& options = bench.options;
  if (options.target_offset >= largest->size_bytes)
    return Status::error("--target_offset lies beyond the target's memory, which has " +
                         std::to_string(largest->size_bytes) + " bytes");
  bench.target = largest->address + options.target_offset;
  bench.size_bytes =
      std::min(largest->size_bytes - options.target_offset, options.total_buffer_size);
  if (options.target_range_size > 0)
    bench.size_bytes = std::min(bench.size_bytes, options.target_range_size);
  return {};
}

/// Patterns and classes either read or write.
Status check_operation(const TebenchOptions& options) {
  const bool is_sweep = options.pattern == "sweep" && options.workload_classes_json.empty();
  if (is_sweep || options.op_type == "read" || options.op_type == "write") return {};
  return Status::error(
      fmt::format("--op_type {} is for --pattern sweep without --workload_classes_json",
                  options.op_type),
      "Choose --op_type read or write, or leave the pattern out");
}

/// Both lead to no row at all.
Status check_order(const char* first, uint64_t from, const char* last, uint64_t to) {
  if (from <= to) return {};
  return Status::error(
      fmt::format("nothing would be measured: {} {} is above {} {}", first, from, last, to),
      fmt::format("Set {} to {} or more", last, from));
}

Status check_ranges(const TebenchOptions& options) {
  if (!options.workload_classes_json.empty()) return {};
  const bool is_sweep = options.pattern == "sweep";
  if (!is_sweep && options.pattern != "r1-w8a8") return {};
  BRAID_TRY(check_order("--start_num_threads", static_cast<uint64_t>(options.start_num_threads),
                        "--max_num_threads", static_cast<uint64_t>(options.max_num_threads)));
  if (!is_sweep) return {};
  BRAID_TRY(check_order("--start_block_size", options.start_block_size, "--max_block_size",
                        options.max_block_size));
  return check_order("--start_batch_size", options.start_batch_size, "--max_batch_size",
                     options.max_batch_size);
}

/// Whether the first row of a sweep has room.
Status check_room(const Bench& bench) {
  const TebenchOptions& options = bench.options;
  if (options.pattern != "sweep" || !options.workload_classes_json.empty()) return {};
  if (bench.has_room(options.start_block_size, options.start_batch_size, options.start_num_threads))
    return {};
  return Status::error(
      fmt::format("nothing would be measured: --start_block_size {} x --start_batch_size {} x {} "
                  "threads do not fit into {} bytes",
                  options.start_block_size, options.start_batch_size, options.start_num_threads,
                  bench.size_bytes),
      "Choose smaller ones, or a larger --total_buffer_size on both sides");
}

Status run_rows(const Transfer::Options& options, Bench& bench, std::vector<TebenchRow>& rows) {
  if (!bench.options.workload_classes_json.empty()) return run_classes(bench, rows);
  if (bench.options.pattern == "sweep") return run_sweep(bench, rows);
  return run_pattern(bench, options, rows);
}

Status run_initiator(const Transfer::Options& options, Bench& bench,
                     std::vector<TebenchRow>& rows) {
  BRAID_TRY(load_driver_if(options.gpu_memory));
  BRAID_LET(memory, open_memory(bench.options.total_buffer_size, bench.options));
  BRAID_LET(engine, Transfer::open(options));
  bench.engine = &engine;
  BRAID_LET(segment, engine.open_segment(bench.options.target_seg_name, kLimit));
  bench.segment = segment;
  BRAID_TRY(choose_range(bench));
  BRAID_TRY(check_room(bench));
  BRAID_TRY(memory.add_to(engine, {}));
  bench.memory = &memory;
  bench.local = memory.address();
  print_head();
  std::optional<ThroughputPlot> plot;
  if (!bench.options.plot_file.empty()) plot.emplace(engine);
  BRAID_TRY(run_rows(options, bench, rows));
  return plot ? plot->write(bench.options.plot_file) : Status();
}

/// Classes have threads of their own.
void set_threads(const std::vector<TebenchClass>& classes, TebenchOptions& options) {
  if (classes.empty()) return;
  options.start_num_threads = 0;
  for (const TebenchClass& each : classes) options.start_num_threads += each.threads;
  options.max_num_threads = options.start_num_threads;
}

int run(const Transfer::Options& options, const TebenchOptions& wanted) {
  for (const std::string& file : {wanted.json_file, wanted.plot_file})
    if (!file.empty())
      if (const Status no = check_writable(file); !no.ok()) return fail(no);
  const auto classes = parse_classes(wanted);
  if (!classes.ok()) return fail(classes.status());
  if (wanted.target_seg_name.empty() && !wanted.has_own_target) {
    const Status ended = be_target(options, wanted);
    return ended.ok() ? 0 : fail(ended);
  }
  Bench bench;
  bench.options = wanted;
  set_threads(classes.value(), bench.options);
  for (const Status& no : {check_operation(bench.options), check_ranges(bench.options)})
    if (!no.ok()) return fail(no);
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
    const Status written = write_file(wanted.json_file, json.dump(1) + "\n");
    if (done.ok() && !written.ok()) return fail(written);
  }
  return done.ok() ? 0 : fail(done);
}

// ---- The command line ----

void add_sizes(CLI::App& command, TebenchOptions& wanted) {
  const auto size = [&](const char* name, uint64_t& value, const char* what) {
    return as_size(command.add_option(name, value, what));
  };
  size("--total_buffer_size", wanted.total_buffer_size, "of each side")->check(above_zero());
  size("--start_block_size", wanted.start_block_size, "bytes of a request")->check(above_zero());
  size("--max_block_size", wanted.max_block_size, "doubled up to here");
  const auto count = [&](const char* name, auto& value, const char* what) {
    command.add_option(name, value, what)->check(above_zero());
  };
  count("--start_batch_size", wanted.start_batch_size, "requests of a batch");
  count("--max_batch_size", wanted.max_batch_size, "doubled up to here");
  count("--start_num_threads", wanted.start_num_threads, "that submit");
  count("--max_num_threads", wanted.max_num_threads, "doubled up to here");
  size("--target_offset", wanted.target_offset, "where this initiator's part of the target begins");
  size("--target_range_size", wanted.target_range_size, "of that part; 0: up to the end");
}

void add_kinds(CLI::App& command, TebenchOptions& wanted) {
  command
      .add_option("--seg_type", wanted.seg_type,
                  "memory of this side: DRAM, or VRAM, which is a GPU's")
      ->transform(CLI::IsMember({"DRAM", "VRAM"}, CLI::ignore_case));
  command.add_option("--local_gpu_id", wanted.local_gpu_id, "whose memory VRAM is")
      ->check(zero_or_more());
  command.add_option("--op_type", wanted.op_type, "read, write, mix, write_seed or read_verify")
      ->check(CLI::IsMember({"read", "write", "mix", "write_seed", "read_verify"}));
  command.add_flag("--check_consistency", wanted.check_consistency,
                   "each transfer is a write and a read, whose bytes are compared");
  command
      .add_option("--request_interval_us", wanted.request_interval_us,
                  "pause of a thread after each transfer")
      ->check(zero_or_more());
  command.add_option("--deadline_us", wanted.deadline_us, "of each request; 0: none")
      ->check(zero_or_more());
  command.add_option("--deadline_tight_threads", wanted.deadline_tight_threads,
                     "the first threads, which have the deadline; -1: all");
  command.add_flag("--notifi", wanted.notifi, "a notification behind each batch");
  command.add_option("--tent_intent_type", wanted.tent_intent_type,
                     "foreground_get: requests are urgent; others are bulk");
  auto* objectives = command.add_option("--qos_classes", wanted.qos_classes,
                                        "name:threads:slo_us:weight,...: a row of each, with the "
                                        "share of transfers within slo_us");
  auto* json = command.add_option("--qos_classes_json", wanted.qos_classes_json,
                                  "the same as an array of objects");
  command
      .add_option("--workload_classes_json", wanted.workload_classes_json,
                  "classes with block_size, batch_size, intent_type and deadline_us too, at once")
      ->excludes(objectives)
      ->excludes(json);
  objectives->excludes(json);
}

void add_own(CLI::App& command, TebenchOptions& wanted) {
  command.add_flag("--pair", wanted.has_own_target, "starts a target of its own on this host");
  command.add_option("--duration", wanted.duration, "seconds of each row")->check(above_zero());
  command.add_option("--warm_up", wanted.warm_up, "seconds before each row")->check(zero_or_more());
  command.add_option("--pattern", wanted.pattern, "sweep, r1-w8a8, weights, mixed or incast")
      ->check(CLI::IsMember({"sweep", "r1-w8a8", "weights", "mixed", "incast"}));
  command.add_option("--incast", wanted.incast, "engines that write to one target at once")
      ->check(between(1, 64));
  command.add_option("--json", wanted.json_file, "the same figures")->type_name("FILE");
  command
      .add_option("--plot", wanted.plot_file,
                  "throughput of each way over time, with their faults, as SVG")
      ->type_name("FILE");
}

/// Mooncake's flags that choose what braid finds by itself. The names of those that were given.
std::shared_ptr<std::vector<std::string>> add_ignored(CLI::App& command) {
  auto given = std::make_shared<std::vector<std::string>>();
  for (const char* name :
       {"--seg_name", "--metadata_type", "--metadata_url_list", "--rpc_server_port", "--xport_type",
        "--backend", "--target_gpu_id", "--tent_transport_hint", "--qos_link_capacity_gbps",
        "--qos_output_jsonl"})
    command
        .add_option_function<std::string>(name, [=](const std::string&) { given->push_back(name); })
        ->group("");
  command
      .add_flag_function("--deadline_bw_arbitration",
                         [=](int64_t) { given->push_back("--deadline_bw_arbitration"); })
      ->group("");
  command
      .add_option("--seg_type_mix",
                  [](const CLI::results_t&) -> bool {
                    throw CLI::ValidationError("--seg_type_mix",
                                               "one kind of memory at a time: use --seg_type");
                  })
      ->expected(0, 1)
      ->group("");
  return given;
}

}  // namespace

void add_tebench_command(CLI::App& app, int& exit_code) {
  CLI::App* command = app.add_subcommand(
      "tebench", "reads and writes between two processes, measured as Mooncake's tebench does");
  auto engine = add_transfer_options(*command);
  auto wanted = std::make_shared<TebenchOptions>();
  command
      ->add_option("--target_seg_name", wanted->target_seg_name,
                   "of the target; without one, and without --pair, this is the target")
      ->check([](const std::string& name) {
        return name.find(',') == std::string::npos ? "" : "name one target, and not several";
      });
  add_kinds(*command, *wanted);
  add_sizes(*command, *wanted);
  add_own(*command, *wanted);
  auto ignored = add_ignored(*command);
  command->callback([=, &exit_code] {
    std::string names;
    for (const std::string& name : *ignored) names += " " + name;
    if (!names.empty()) fmt::print(stderr, "braid: these flags have no effect here:{}\n", names);
    engine->gpu_memory = engine->gpu_memory || wanted->is_on_gpu();
    exit_code = run(*engine, *wanted);
  });
}

}  // namespace braid::tools
