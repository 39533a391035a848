// braid tune: measures what copies cost on this server and keeps it in the user's cache folder.
#include <fmt/core.h>

#include <chrono>
#include <map>
#include <tuple>

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

// Rounds of one pair after a pause and three that follow one another.
constexpr int kRounds = 5;
constexpr int kPauseMs = 100;  // cold beyond doubt: multipath::kColdAfterNs

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
    const Readings& readings = sample.mover == Mover::kNative
                                   ? (sample.is_cold ? record->native_first : record->native)
                                   : (sample.is_cold ? record->braid_first : record->braid);
    const double gbps = sample.is_cold ? readings.lowest() : readings.median();
    return static_cast<double>(sample.size_bytes) / (gbps * 1e3);
  }
  const Status& status() const { return status_; }

 private:
  const Record* record_of(const Sample& sample) {
    const auto key = std::tuple(sample.size_bytes, sample.paths);
    if (const auto known = records_.find(key); known != records_.end()) return &known->second;
    if (!status_.ok()) return nullptr;
    const auto measured = bench_.run({.direction = direction_,
                                      .size_bytes = sample.size_bytes,
                                      .paths = sample.paths,
                                      .repeat = kRounds,
                                      .pause_ms = kPauseMs,
                                      .is_warm = is_real_});
    status_ = judge(measured);
    return status_.ok() ? &records_.emplace(key, measured.value()).first->second : nullptr;
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
  std::map<std::tuple<uint64_t, int>, Record> records_;
  Status status_;
};

Result<CostModel> measure(const cuda::Driver& driver, Options options, int target, bool is_real,
                          CostModel costs) {
  options.threshold_bytes = 1;  // every size through braid
  options.costs = "none";       // the old ones must not choose what the new ones are made of
  const auto bench = Bench::open(driver, options, target, kLargestSampleBytes, 1);
  if (!bench.ok()) return bench.status();
  if (bench.value()->gpu_count() < 2)
    return Status::error("this server has one GPU, and no copy can take another way");
  for (const Direction direction : kDirections) {
    BenchSampler sampler(*bench.value(), direction, is_real);
    for (const Fit& fit : fits()) {
      fit.run([&](const Sample& sample) { return sampler.time_us(sample); },
              bench.value()->gpu_count(), costs.of(direction));
      if (!sampler.status().ok()) return sampler.status();
    }
  }
  return costs;
}

std::string threshold_text(const CostModel& costs, Direction direction, int paths) {
  const uint64_t threshold =
      multipath::threshold_bytes(costs, {.direction = direction, .paths = paths});
  return threshold == UINT64_MAX ? "never" : format_size(threshold);
}

void print_costs(const CostModel& before, const CostModel& after, int paths) {
  const auto row = [](const std::string& name, const auto&... texts) {
    fmt::print("{:<28}", name);
    (fmt::print("{:>12}", texts), ...);
    fmt::print("\n");
  };
  row("", "h2d before", "after", "d2h before", "after");
  const auto number = [](double value) { return fmt::format("{:.1f}", value); };
  const auto &to = Direction::kHostToDevice, &from = Direction::kDeviceToHost;
  for (const multipath::CostRow& cost : multipath::cost_rows())
    row(cost.name, number(before.of(to).*cost.value), number(after.of(to).*cost.value),
        number(before.of(from).*cost.value), number(after.of(from).*cost.value));
  row("threshold", threshold_text(before, to, paths), threshold_text(after, to, paths),
      threshold_text(before, from, paths), threshold_text(after, from, paths));
}

void print_plans(const CostModel& costs, int paths) {
  fmt::print("\n{:<5}{:>8}{:>12}  {:<22}{}\n", "", "size", "native us", "expected us",
             "after a pause");
  for (const Direction direction : kDirections)
    for (const uint64_t mib : {1, 2, 4, 8, 16, 64}) {
      multipath::Request request{
          .direction = direction, .size_bytes = mib << 20, .paths = paths, .is_cold = false};
      const auto text = [&] {
        const multipath::Plan chosen = multipath::plan(costs, request);
        return chosen.mover == Mover::kNative ? std::string("native")
                                              : fmt::format("{:.1f} {} {}", chosen.expected_us(),
                                                            mover_name(chosen.mover), chosen.paths);
      };
      int native_paths = 1;
      const double native_us = expected_us(costs, Mover::kNative, request, native_paths);
      const std::string warm = text();
      request.is_cold = true;
      fmt::print("{:<5}{:>8}{:>12.1f}  {:<22}{}\n",
                 direction == Direction::kHostToDevice ? "h2d" : "d2h",
                 format_size(request.size_bytes), native_us, warm, text());
    }
}

Result<std::string> place_for(const Arguments& arguments, const Options& options,
                              const std::string& server) {
  const std::string path =
      arguments.out.empty() ? multipath::cost_file_path(options, server) : arguments.out;
  if (!path.empty() || arguments.dry_run) return path;
  return Status::error("there is no place for the file: BRAID_COSTS is none, or there is no HOME",
                       "Name one, --out FILE, or only look: --dry-run");
}

int64_t seconds_since_1970() {
  return std::chrono::duration_cast<std::chrono::seconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

Status tune(const Arguments& arguments) {
  const auto options = read_options([](const char* name) { return getenv(name); });
  if (!options.ok()) return options.status();
  const auto driver = open_server(arguments.server);
  if (!driver.ok()) return driver.status();
  const auto server = multipath::server_key(driver.value());
  if (!server.ok()) return server.status();
  const auto path = place_for(arguments, options.value(), server.value());
  if (!path.ok()) return path.status();
  const CostModel before = multipath::load_costs(driver.value(), options.value()).costs;
  const auto after =
      measure(driver.value(), options.value(), arguments.target, arguments.server.empty(), before);
  if (!after.ok()) return after.status();
  int gpus = 0;
  driver.value().cuDeviceGetCount(&gpus);
  print_costs(before, after.value(), gpus);
  print_plans(after.value(), gpus);
  if (arguments.dry_run) return {};
  const Status written = multipath::write_cost_file(
      path.value(), {server.value(), seconds_since_1970(), after.value()});
  if (written.ok()) fmt::print("\nWritten to {}\n", path.value());
  return written;
}

}  // namespace

void add_tune_command(CLI::App& app, int& exit_code) {
  auto arguments = std::make_shared<Arguments>();
  CLI::App* command = app.add_subcommand(
      "tune", "measure what copies cost on this server, so that only those that gain take relays");
  command->add_option("--server", arguments->server,
                      "an emulated server: a profile's name or file (default: the real GPUs)");
  command->add_option("--target", arguments->target, "GPU to copy to and from")
      ->capture_default_str();
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
