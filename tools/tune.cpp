// braid tune: measures what copies cost on this server and keeps it in the user's cache folder.
#include <fmt/core.h>

#include <algorithm>
#include <ctime>
#include <filesystem>
#include <map>
#include <span>
#include <tuple>

#include "base/try.h"
#include "base/units.h"
#include "multipath/cost_file.h"
#include "tools/commands.h"
#include "tools/fit.h"
#include "tools/measure.h"
#include "tools/open_server.h"

namespace braid::tools {
namespace {

using multipath::CostFile;
using multipath::CostModel;
using multipath::Direction;
using multipath::Mover;

constexpr Direction kDirections[] = {Direction::kHostToDevice, Direction::kDeviceToHost};

// Readings of copies that follow one another: so many rounds of three, fewer of the largest, which
// differ less. Virtual time is the same each time.
constexpr int kRounds = 5;
constexpr int kRoundsOfLargest = 2;
constexpr int kColdRounds = 5;  // of one copy after a pause
constexpr int kPauseMs = 100;   // cold beyond doubt: multipath::kColdAfterNs

struct Arguments {
  std::string server;
  std::string out;
  bool dry_run = false;
  int target = 0;
};

// Times copies through a Bench, native and braid's in turns. What one run of it has measured serves
// every sample that it answers. Keeps the first error; samples after it are 1 us.
class BenchSampler {
 public:
  BenchSampler(Bench& bench, Direction direction, bool is_real)
      : bench_(bench), direction_(direction), is_real_(is_real) {}

  double time_us(const Sample& sample) {
    const Record* record = record_of(sample);
    if (record == nullptr) return 1;
    const bool is_native = sample.mover == Mover::kNative;
    // Half of the first copies being slower than expected would not do.
    const double gbps = sample.is_cold
                            ? (is_native ? record->native_first : record->braid_first).lowest()
                            : (is_native ? record->native : record->braid).median();
    return static_cast<double>(sample.size_bytes) / (gbps * 1e3);
  }
  const Status& status() const { return status_; }

 private:
  const Record* record_of(const Sample& sample) {
    const auto key =
        std::tuple(sample.size_bytes, sample.paths, sample.is_cold, sample.segment_bytes);
    if (const auto known = records_.find(key); known != records_.end()) return &known->second;
    if (!status_.ok()) return nullptr;
    const auto measured = bench_.run(case_of(sample));
    status_ = judge(measured);
    return status_.ok() ? &records_.emplace(key, measured.value()).first->second : nullptr;
  }

  Case case_of(const Sample& sample) const {
    Case what{.direction = direction_, .size_bytes = sample.size_bytes, .paths = sample.paths};
    if (sample.segment_bytes != 0) what.scenario = Scenario::kBatch;
    what.segment_bytes = sample.segment_bytes;
    what.is_warm = is_real_;
    what.repeat = sample.size_bytes == kLargestSampleBytes ? kRoundsOfLargest : kRounds;
    if (sample.is_cold) {
      what.repeat = kColdRounds;
      what.steady_pairs = 0;
      what.pause_ms = kPauseMs;
    }
    if (!is_real_) what.repeat = 1;
    return what;
  }

  static Status judge(const Result<Record>& measured) {
    if (!measured.ok()) return measured.status();
    if (!measured.value().verified) return Status::error("some copies had wrong bytes");
    if (measured.value().verdict == multipath::verdict_name(multipath::Verdict::kAccelerated))
      return {};
    return Status::error("braid leaves copies on this server native: " + measured.value().verdict,
                         "braid doctor says why");
  }

  Bench& bench_;
  Direction direction_;
  bool is_real_;
  std::map<std::tuple<uint64_t, int, bool, uint64_t>, Record> records_;
  Status status_;
};

// What an engine is opened with: native copies are measured beside kernels'.
MoverChoice choice_of(const Fit& fit) {
  return fit.mover == Mover::kCopyEngine ? MoverChoice::kCopyEngine : MoverChoice::kKernel;
}

// The fits that ask for one engine, of both directions.
Status run_fits(Bench& bench, std::span<const Fit> group, bool has_batches, bool is_real,
                CostModel& costs) {
  for (const Direction direction : kDirections) {
    BenchSampler sampler(bench, direction, is_real);
    for (const Fit& fit : group) {
      if (fit.is_of_batches && !has_batches) continue;
      fit.run([&](const Sample& sample) { return sampler.time_us(sample); }, bench.gpu_count(),
              costs.of(direction));
      if (!sampler.status().ok()) return sampler.status();
    }
  }
  return {};
}

Result<CostModel> measure(const cuda::Driver& driver, Options options, int target, bool is_real,
                          CostModel costs) {
  options.threshold_bytes = 1;  // every size through braid
  options.costs = "none";       // the old ones must not choose what the new ones are made of
  const bool has_batches = driver.copy_batch != nullptr;
  for (std::span<const Fit> left = fits(); !left.empty();) {
    options.mover = choice_of(left.front());
    const auto other = std::find_if(
        left.begin(), left.end(), [&](const Fit& fit) { return choice_of(fit) != options.mover; });
    const auto group = left.first(static_cast<size_t>(other - left.begin()));
    BRAID_LET(bench,
              Bench::open(driver, options, Scenario::kLinear, target, kLargestSampleBytes, 1));
    if (bench->gpu_count() < 2)
      return Status::error("this server has one GPU, and no copy can take another way");
    BRAID_TRY(run_fits(*bench, group, has_batches, is_real, costs));
    left = left.subspan(group.size());
  }
  return costs;
}

std::string threshold_text(const CostModel& costs, Direction direction, int paths) {
  const uint64_t threshold = multipath::threshold_bytes(
      costs, {.direction = direction, .paths = paths, .mover = multipath::Mover::kCopyEngine});
  return threshold == UINT64_MAX ? "never" : format_size(threshold);
}

void print_costs(const CostModel& before, const CostModel& after, int paths) {
  const auto row = [](const std::string& name, const auto&... texts) {
    fmt::print("{:<34}", name);
    (fmt::print("{:>12}", texts), ...);
    fmt::print("\n");
  };
  row("", "h2d before", "after", "d2h before", "after");
  const auto number = [](double value) { return fmt::format("{:.7g}", value); };
  const auto &to = Direction::kHostToDevice, &from = Direction::kDeviceToHost;
  for (const multipath::CostRow& cost : multipath::cost_rows())
    row(cost.name, number(before.of(to).*cost.value), number(after.of(to).*cost.value),
        number(before.of(from).*cost.value), number(after.of(from).*cost.value));
  row("threshold", threshold_text(before, to, paths), threshold_text(after, to, paths),
      threshold_text(before, from, paths), threshold_text(after, from, paths));
}

// What `auto` would do, and what each mover is expected to take.
void print_plans(const CostModel& costs, int paths) {
  fmt::print("\n{:<4}{:>6}{:>9}{:>11}{:>11}{:>16}   {:<18}{}\n", "", "size", "segments",
             "native us", "kernel us", "copy-engine us", "auto", "after a pause");
  for (const Direction direction : kDirections)
    for (const auto& [mib, segment_kib] :
         {std::pair{1, 0}, {2, 0}, {4, 0}, {8, 0}, {16, 0}, {64, 0}, {256, 0}, {16, 64}, {16, 8}}) {
      const bool is_batch = segment_kib != 0;
      multipath::PlanRequest request{.direction = direction,
                                     .size_bytes = static_cast<uint64_t>(mib) << 20,
                                     .paths = paths,
                                     .mover = is_batch ? Mover::kKernel : Mover::kCopyEngine};
      if (is_batch) request.segments = static_cast<uint64_t>(mib * 1024 / segment_kib);
      const auto expected_us = [&](Mover mover) {
        int taken = 0;
        return is_batch && mover == Mover::kCopyEngine
                   ? std::string("-")
                   : fmt::format("{:.1f}", multipath::expected_us(costs, mover, request, taken));
      };
      const std::string native_us = expected_us(Mover::kNative);
      const std::string kernel_us = expected_us(Mover::kKernel);
      const std::string engine_us = expected_us(Mover::kCopyEngine);
      const multipath::Plan warm = multipath::plan(costs, request);
      request.is_cold = true;
      const multipath::Plan cold = multipath::plan(costs, request);
      const auto text = [](const multipath::Plan& plan) {
        return plan.mover == Mover::kNative
                   ? std::string("native")
                   : fmt::format("{} {}", mover_name(plan.mover), plan.paths);
      };
      fmt::print("{:<4}{:>6}{:>9}{:>11}{:>11}{:>16}   {:<18}{}\n",
                 direction == Direction::kHostToDevice ? "h2d" : "d2h",
                 format_size(request.size_bytes), is_batch ? fmt::format("{}K", segment_kib) : "",
                 native_us, kernel_us, engine_us, text(warm), text(cold));
    }
}

// The user's cache has a folder of braid's, if need be; others must be there.
Result<std::string> place_for(const Arguments& arguments, const Options& options,
                              const std::string& server) {
  const std::string path =
      arguments.out.empty() ? multipath::cost_file_path(options, server) : arguments.out;
  if (arguments.dry_run) return path;
  std::error_code ignored;  // the check says it
  if (arguments.out.empty() && !path.empty())
    std::filesystem::create_directories(std::filesystem::path(path).parent_path(), ignored);
  if (path.empty())
    return Status::error("there is no place for the file: BRAID_COSTS is none, or there is no HOME",
                         "Name one, --out FILE, or only look: --dry-run");
  BRAID_TRY(check_replaceable(path, "Name a regular file: --out FILE"));
  return path;
}

Status tune(const Arguments& arguments) {
  BRAID_LET(options, read_options());
  BRAID_LET(driver, open_server(arguments.server));
  BRAID_LET(server, multipath::server_key(driver));
  BRAID_LET(path, place_for(arguments, options, server));
  const CostModel before = multipath::load_costs(driver, options).costs;
  BRAID_LET(after, measure(driver, options, arguments.target, arguments.server.empty(), before));
  int gpus = 0;
  driver.cuDeviceGetCount(&gpus);
  print_costs(before, after, gpus);
  print_plans(after, gpus);
  if (arguments.dry_run) return {};
  BRAID_TRY(multipath::write_cost_file(path, {server, time(nullptr), after}));
  fmt::print("\nWritten to {}\n", path);
  return {};
}

}  // namespace

void add_tune_command(CLI::App& app, int& exit_code) {
  auto arguments = std::make_shared<Arguments>();
  CLI::App* command = app.add_subcommand(
      "tune", "measure what copies cost on this server, so that only those that gain take relays");
  add_server_option(*command, arguments->server);
  command->add_option("--target", arguments->target, "GPU to copy to and from");
  command->add_option("--out", arguments->out,
                      "write this file (default: the server's own in the user's cache folder)");
  command->add_flag("--dry-run", arguments->dry_run, "measure and print, and write nothing");
  command->footer(
      "Takes less than a minute; let nothing else use the GPUs meanwhile. docs/tuning.md says "
      "what\n"
      "is measured and how programs use it.");
  command->callback([arguments, &exit_code] {
    const Status status = tune(*arguments);
    if (!status.ok()) exit_code = fail(status);
  });
}

}  // namespace braid::tools
