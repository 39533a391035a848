// braid bench: native copies against braid's and the server's limit, in turns in one run.
#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/try.h"
#include "base/units.h"
#include "tools/commands.h"
#include "tools/measure.h"
#include "tools/numbers.h"
#include "tools/open_server.h"
#include "tools/write_file.h"

namespace braid::tools {
namespace {

using multipath::Direction;

struct Arguments {
  std::string server;
  std::string direction;
  std::string sizes = "1M,2M,4M,8M,16M,64M,256M,1G";
  int target = 0;
  std::vector<int> paths;
  int repeat = 5;
  bool with_limit = true;
  std::string scenario;  // empty: linear copies
  std::string segment = "64K";
  std::string json_file;
  uint64_t seed = 1;
};

std::string share_text(const Record& record) {
  uint64_t total = 0;
  for (const auto& [gpu, bytes] : record.share) total += bytes;
  std::string text;
  for (const auto& [gpu, bytes] : record.share)
    text += fmt::format("{}{}:{:.0f}%", text.empty() ? "" : " ", gpu,
                        100.0 * static_cast<double>(bytes) / static_cast<double>(total));
  return text.empty() ? record.verdict : text;
}

double ratio(const Record& record) { return record.braid.median() / record.native.median(); }

double of_limit(const Record& record) { return record.braid.median() / record.limit.median(); }

// The columns of native copies and braid's, and of the limit, which may be left out.
std::string figures_header(const Arguments& arguments) {
  return fmt::format(
      "{:>22}  {:>22}  {:>6}{}", "native GB/s (range)", "braid GB/s (range)", "ratio",
      arguments.with_limit ? fmt::format("  {:>22}  {:>8}", "limit GB/s (range)", "of limit") : "");
}

std::string figures(const Record& record) {
  const std::string limit =
      record.limit.values.empty()
          ? ""
          : fmt::format("  {:>22}  {:>7.1f}%", record.limit.text(1), 100 * of_limit(record));
  return fmt::format("{:>22}  {:>22}  {:>5.2f}x{}", record.native.text(1), record.braid.text(1),
                     ratio(record), limit);
}

// The emulator's CPU time says nothing.
bool is_emulated(const Arguments& arguments) { return !arguments.server.empty(); }

void print_header(const Arguments& arguments) {
  const std::string figures = figures_header(arguments);
  if (!arguments.scenario.empty())
    fmt::print("{:<10} {:<5} {:>6} {:>8}  {}  {:<8}  {}\n", "scenario", "", "size", "segment",
               figures, "verified", "outcome");
  else
    fmt::print("{:<4} {:>6} {:>5}  {}{}  {:<8}  {}\n", "", "size", "paths", figures,
               is_emulated(arguments) ? "" : "  submit us", "verified", "share of each GPU's link");
}

const char* direction_text(const Case& one) {
  return one.scenario == Scenario::kBoth ? "both" : direction_name(one.direction);
}

void print_row(const Arguments& arguments, const Case& one, const Record& record) {
  const std::string size = format_size(one.size_bytes);
  const char* const verified = record.verified ? "yes" : "NO";
  if (!arguments.scenario.empty())
    fmt::print("{:<10} {:<5} {:>6} {:>8}  {}  {:<8}  {}\n", arguments.scenario, direction_text(one),
               size, one.segment_bytes != 0 ? format_size(one.segment_bytes) : "", figures(record),
               verified, record.verdict);
  else
    fmt::print("{:<4} {:>6} {:>5}  {}{}  {:<8}  {}\n", direction_text(one), size, one.paths,
               figures(record),
               is_emulated(arguments) ? "" : fmt::format("  {:>9.1f}", record.submit_us.median()),
               verified, share_text(record));
  std::fflush(stdout);
}

// Readings of linear copies are two fields, those of scenarios an object.
void add_readings(nlohmann::json& json, const std::string& name, const Readings& all,
                  bool is_linear) {
  const nlohmann::json range = {all.lowest(), all.highest()};
  json[name] = is_linear ? nlohmann::json(all.median())
                         : nlohmann::json{{"median", all.median()}, {"range", range}};
  if (is_linear) json[name + "_range"] = range;
}

nlohmann::json to_json(const Arguments& arguments, const Case& one, const Record& record) {
  const bool is_linear = arguments.scenario.empty();
  nlohmann::json json = {{"direction", direction_text(one)}, {"size_bytes", one.size_bytes},
                         {"ratio", ratio(record)},           {"repeat", record.braid.values.size()},
                         {"verified", record.verified},      {"verdict", record.verdict}};
  add_readings(json, "native_gbps", record.native, is_linear);
  add_readings(json, "braid_gbps", record.braid, is_linear);
  if (!record.limit.values.empty()) {
    add_readings(json, "limit_gbps", record.limit, is_linear);
    json["of_limit"] = of_limit(record);
  }
  if (!is_linear) {
    json["scenario"] = arguments.scenario;
    json["segment_bytes"] = one.segment_bytes;
    return json;
  }
  json["target"] = arguments.target;
  json["paths"] = one.paths;
  json["native_first_gbps"] = record.native_first.median();
  json["braid_first_gbps"] = record.braid_first.median();
  json["share"] = nlohmann::json::object();
  for (const auto& [gpu, bytes] : record.share) json["share"][std::to_string(gpu)] = bytes;
  if (!is_emulated(arguments)) json["submit_us"] = record.submit_us.median();
  return json;
}

void show_progress(size_t done, size_t all) {
  if (isatty(STDERR_FILENO) == 0) return;
  fmt::print(stderr, "\r{}/{} \x1b[K", done, all);
  if (done == all) fmt::print(stderr, "\r\x1b[K");
}

Result<std::vector<Direction>> read_directions(const Arguments& arguments, Scenario scenario) {
  const std::string& text = arguments.direction;
  std::vector<Direction> directions;
  if (text.empty() || text == "h2d") directions.push_back(Direction::kHostToDevice);
  if ((text.empty() && scenario != Scenario::kBoth) || text == "d2h")
    directions.push_back(Direction::kDeviceToHost);
  if (!directions.empty()) return directions;
  return Status::error("'" + text + "' is not a direction", "Write h2d or d2h");
}

Result<Scenario> read_scenario(const std::string& text) {
  if (text.empty()) return Scenario::kLinear;
  if (text == "batch") return Scenario::kBatch;
  if (text == "both") return Scenario::kBoth;
  if (text == "every-gpu") return Scenario::kEveryGpu;
  if (text == "pageable") return Scenario::kPageable;
  return Status::error("'" + text + "' is not a scenario",
                       "Write batch, both, every-gpu or pageable");
}

Status check_sizes(const std::vector<uint64_t>& sizes) {
  if (std::find(sizes.begin(), sizes.end(), 0u) == sizes.end()) return {};
  return Status::error("a size of 0 cannot be measured", "Write sizes above 0");
}

Status check_segments(const std::vector<uint64_t>& sizes, const std::string& segment) {
  BRAID_LET(segment_bytes, parse_size(segment));
  if (segment_bytes == 0 || segment_bytes % 8 != 0)
    return Status::error("'" + segment + "' is not a segment's size",
                         "Write a multiple of 8 bytes");
  for (const uint64_t size : sizes)
    if (size % segment_bytes != 0)
      return Status::error("a batch of " + format_size(size) + " is not whole segments of " +
                           segment);
  return {};
}

// Every combination that was asked for, in the order of the table; without --paths 0 of them.
Result<std::vector<Case>> list_cases(const Arguments& arguments) {
  BRAID_LET(scenario, read_scenario(arguments.scenario));
  BRAID_LET(sizes, parse_size_list(arguments.sizes));
  BRAID_TRY(check_sizes(sizes));
  BRAID_LET(directions, read_directions(arguments, scenario));
  const bool is_linear = scenario == Scenario::kLinear;
  const bool is_batch = scenario == Scenario::kBatch;
  if (is_batch) BRAID_TRY(check_segments(sizes, arguments.segment));
  std::vector<Case> cases;
  for (const Direction direction : directions)
    for (const int count : arguments.paths.empty() ? std::vector{0} : arguments.paths)
      for (const uint64_t size : sizes)
        cases.push_back({.scenario = scenario,
                         .direction = direction,
                         .size_bytes = size,
                         .segment_bytes = is_batch ? parse_size(arguments.segment).value() : 0,
                         .paths = count,
                         .repeat = arguments.repeat,
                         .with_limit = arguments.with_limit,
                         .times_first = is_linear,
                         .steady_pairs = is_linear ? 3 : 1,
                         .is_warm = !is_emulated(arguments)});
  return cases;
}

Status check_paths(const std::vector<int>& paths, int gpus) {
  for (const int count : paths)
    if (count < 1 || count > gpus)
      return Status::error(
          fmt::format("{} paths were asked for, and this server has {} GPUs", count, gpus),
          fmt::format("Write --paths from 1 to {}", gpus));
  return {};
}

Status write_records(const std::string& file, const nlohmann::json& records) {
  if (file.empty()) return {};
  return write_file(file, records.dump(2) + "\n");
}

// Whether every byte of every copy was right.
Result<bool> run_bench(const Arguments& arguments) {
  BRAID_LET(cases, list_cases(arguments));
  BRAID_LET(driver, open_server(arguments.server));
  int gpus = 0;
  driver.cuDeviceGetCount(&gpus);
  BRAID_TRY(check_paths(arguments.paths, gpus));
  BRAID_LET(options, read_options());
  uint64_t max_bytes = 0;
  for (Case& one : cases) {
    max_bytes = std::max(max_bytes, one.span_bytes());
    if (arguments.paths.empty()) one.paths = gpus;
  }
  BRAID_LET(bench, Bench::open(driver, options, cases.front().scenario, arguments.target, max_bytes,
                               arguments.seed));
  bool all_verified = true;
  nlohmann::json records = nlohmann::json::array();
  print_header(arguments);
  for (const Case& one : cases) {
    show_progress(records.size(), cases.size());
    BRAID_LET(record, bench->run(one));
    print_row(arguments, one, record);
    records.push_back(to_json(arguments, one, record));
    all_verified = all_verified && record.verified;
  }
  show_progress(records.size(), cases.size());
  const Status written = write_records(arguments.json_file, records);
  return written.ok() ? Result<bool>(all_verified) : written;
}

// What would be ignored, and a file that could not be written after the measurements.
Status check_arguments(const CLI::App& command, const Arguments& arguments) {
  const std::string& scenario = arguments.scenario;
  if (!scenario.empty() && command.count("--paths") != 0)
    return Status::error("--paths means nothing to --scenario", "Leave one of them out");
  if (scenario != "batch" && command.count("--segment") != 0)
    return Status::error("--segment is of batches", "Add --scenario batch");
  if (scenario == "both" && command.count("--direction") != 0)
    return Status::error("--direction means nothing to --scenario both", "Leave it out");
  if (arguments.json_file == "-")
    return Status::error("--json - is no file: the table goes to standard output", "Name a file");
  return arguments.json_file.empty() ? Status() : check_writable(arguments.json_file);
}

}  // namespace

void add_bench_command(CLI::App& app, int& exit_code) {
  auto arguments = std::make_shared<Arguments>();
  CLI::App* command = app.add_subcommand(
      "bench",
      "Native copies against braid's, in turns in one run: medians, spread, every byte verified");
  add_server_option(*command, arguments->server);
  command->add_option("--direction", arguments->direction, "h2d or d2h (default: both)");
  command->add_option("--sizes", arguments->sizes, "sizes to copy");
  command->add_option("--target", arguments->target, "GPU to copy to or from");
  command
      ->add_option("--paths", arguments->paths,
                   "paths to use at most, the direct one included (default: one a GPU)")
      ->delimiter(',');
  command
      ->add_option(
          "--repeat", arguments->repeat,
          "rounds: one copy of each kind after a pause, then three that follow one another")
      ->check(between(1, 1000));
  command
      ->add_flag("--limit,!--no-limit", arguments->with_limit,
                 "measure in turns what direct copies to every GPU at once reach, and compare "
                 "with it (default; --no-limit saves its time)")
      ->default_str("");
  command->add_option("--scenario", arguments->scenario,
                      "instead of pinned linear copies: batch (scattered segments), both "
                      "(directions at once), every-gpu (a copy each at once), pageable");
  command->add_option("--segment", arguments->segment, "bytes of a batch's segments");
  command->add_option("--json", arguments->json_file,
                      "write the records to this file (docs/bench.md)");
  command->add_option("--seed", arguments->seed, "of the random bytes");
  command->footer(
      "Each copy is timed alone, between two events on its stream.\n"
      "Options of braid itself are read from the environment (docs/options.md), e.g. "
      "BRAID_MOVER=kernel.");
  command->callback([arguments, command, &exit_code] {
    const Status status = check_arguments(*command, *arguments);
    const auto verified = status.ok() ? run_bench(*arguments) : Result<bool>(status);
    if (!verified.ok())
      exit_code = fail(verified.status());
    else if (!verified.value())
      exit_code = fail(Status::error("some copies had wrong bytes"));
  });
}

}  // namespace braid::tools
