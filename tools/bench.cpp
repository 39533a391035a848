// braid bench: native copies against braid's and the server's limit, in turns in one run.
#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/try.h"
#include "base/units.h"
#include "tools/commands.h"
#include "tools/measure.h"
#include "tools/open_server.h"
#include "tools/scenarios.h"

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

double ratio(const Outcome& outcome) { return outcome.braid.median() / outcome.native.median(); }

double of_limit(const Outcome& outcome) { return outcome.braid.median() / outcome.limit.median(); }

// The columns of native copies and braid's, and of the limit, which may be left out.
std::string figures_header(const Arguments& arguments) {
  return fmt::format(
      "{:>22}  {:>22}  {:>6}{}", "native GB/s (range)", "braid GB/s (range)", "ratio",
      arguments.with_limit ? fmt::format("  {:>22}  {:>8}", "limit GB/s (range)", "of limit") : "");
}

std::string figures(const Outcome& outcome) {
  const std::string limit =
      outcome.limit.values.empty()
          ? ""
          : fmt::format("  {:>22}  {:>7.1f}%", outcome.limit.text(1), 100 * of_limit(outcome));
  return fmt::format("{:>22}  {:>22}  {:>5.2f}x{}", outcome.native.text(1), outcome.braid.text(1),
                     ratio(outcome), limit);
}

const char* verified_text(const Outcome& outcome) { return outcome.verified ? "yes" : "NO"; }

void print_header(const Arguments& arguments) {
  const std::string figures = figures_header(arguments);
  if (!arguments.scenario.empty())
    fmt::print("{:<10} {:<5} {:>6} {:>8}  {}  {:<8}  {}\n", "scenario", "", "size", "segment",
               figures, "verified", "outcome");
  else
    fmt::print("{:<4} {:>6} {:>5}  {}{}  {:<8}  {}\n", "", "size", "paths", figures,
               arguments.server.empty() ? "  submit us" : "", "verified",
               "share of each GPU's link");
}

void print_row(const Record& record, bool emulated) {
  fmt::print("{:<4} {:>6} {:>5}  {}{}  {:<8}  {}\n", direction_name(record.direction),
             format_size(record.size_bytes), record.paths, figures(record),
             emulated ? "" : fmt::format("  {:>9.1f}", record.submit_us.median()),
             verified_text(record), share_text(record));
  std::fflush(stdout);
}

nlohmann::json to_json(const Record& record, bool emulated) {
  nlohmann::json json = {{"direction", direction_name(record.direction)},
                         {"size_bytes", record.size_bytes},
                         {"target", record.target},
                         {"paths", record.paths},
                         {"native_gbps", record.native.median()},
                         {"native_gbps_range", {record.native.lowest(), record.native.highest()}},
                         {"braid_gbps", record.braid.median()},
                         {"braid_gbps_range", {record.braid.lowest(), record.braid.highest()}},
                         {"ratio", ratio(record)},
                         {"native_first_gbps", record.native_first.median()},
                         {"braid_first_gbps", record.braid_first.median()},
                         {"repeat", record.braid.values.size()},
                         {"verified", record.verified},
                         {"verdict", record.verdict},
                         {"share", nlohmann::json::object()}};
  for (const auto& [gpu, bytes] : record.share) json["share"][std::to_string(gpu)] = bytes;
  if (!emulated) json["submit_us"] = record.submit_us.median();
  if (!record.limit.values.empty()) {
    json["limit_gbps"] = record.limit.median();
    json["limit_gbps_range"] = {record.limit.lowest(), record.limit.highest()};
    json["of_limit"] = of_limit(record);
  }
  return json;
}

void show_progress(size_t done, size_t all) {
  if (isatty(STDERR_FILENO) == 0) return;
  fmt::print(stderr, "\r{}/{} \x1b[K", done, all);
  if (done == all) fmt::print(stderr, "\r\x1b[K");
}

struct Asked {
  std::vector<Direction> directions;
  std::vector<uint64_t> sizes;
};

Result<Asked> read_lists(const Arguments& arguments) {
  const std::string& text = arguments.direction;
  BRAID_LET(sizes, parse_size_list(arguments.sizes));
  if (std::find(sizes.begin(), sizes.end(), 0u) != sizes.end())
    return Status::error("a size of 0 cannot be measured", "Write sizes above 0");
  Asked asked{{}, sizes};
  if (text.empty() || text == "h2d") asked.directions.push_back(Direction::kHostToDevice);
  if (text.empty() || text == "d2h") asked.directions.push_back(Direction::kDeviceToHost);
  if (!asked.directions.empty()) return asked;
  return Status::error("'" + text + "' is not a direction", "Write h2d or d2h");
}

// Every combination that was asked for, in the order of the table.
Result<std::vector<Case>> list_cases(const Arguments& arguments, int gpus) {
  BRAID_LET(asked, read_lists(arguments));
  std::vector<int> paths = arguments.paths.empty() ? std::vector{gpus} : arguments.paths;
  for (const int count : paths)
    if (count < 1 || count > gpus)
      return Status::error(
          fmt::format("{} paths were asked for, and this server has {} GPUs", count, gpus),
          fmt::format("Write --paths from 1 to {}", gpus));
  std::vector<Case> cases;
  for (const Direction direction : asked.directions)
    for (const int count : paths)
      for (const uint64_t size : asked.sizes)
        cases.push_back({.direction = direction,
                         .size_bytes = size,
                         .paths = count,
                         .repeat = arguments.repeat,
                         .with_limit = arguments.with_limit,
                         .is_warm = arguments.server.empty()});
  return cases;
}

Status write_records(const std::string& file, const nlohmann::json& records) {
  if (file.empty()) return {};
  std::ofstream stream(file);
  stream << records.dump(2) << std::endl;
  return stream ? Status() : Status::error("cannot write '" + file + "'");
}

// Every case on one `Bench` that `open` makes; `show` prints a row and returns the record.
template <typename Cases, typename Open, typename Show>
Result<bool> measure(const Arguments& arguments, const Cases& cases, Open open, Show show) {
  BRAID_LET(options, read_options());
  uint64_t max_bytes = 0;
  for (const auto& one : cases) max_bytes = std::max(max_bytes, one.size_bytes);
  BRAID_LET(bench, open(options, max_bytes));
  bool all_verified = true;
  nlohmann::json records = nlohmann::json::array();
  print_header(arguments);
  for (const auto& one : cases) {
    show_progress(records.size(), cases.size());
    BRAID_LET(record, bench->run(one));
    records.push_back(show(one, record));
    all_verified = all_verified && record.verified;
  }
  show_progress(records.size(), cases.size());
  const Status written = write_records(arguments.json_file, records);
  return written.ok() ? Result<bool>(all_verified) : written;
}

Result<bool> run_bench(const Arguments& arguments) {
  BRAID_LET(driver, open_server(arguments.server));
  int gpus = 0;
  driver.cuDeviceGetCount(&gpus);
  BRAID_LET(cases, list_cases(arguments, gpus));
  return measure(
      arguments, cases,
      [&](const Options& options, uint64_t max_bytes) {
        return Bench::open(driver, options, arguments.target, max_bytes, arguments.seed);
      },
      [&](const Case&, const Record& record) {
        const bool emulated = !arguments.server.empty();  // its CPU time says nothing
        print_row(record, emulated);
        return to_json(record, emulated);
      });
}

const char* direction_text(const ScenarioCase& one) {
  return one.scenario == Scenario::kBoth ? "both" : direction_name(one.direction);
}

nlohmann::json to_json(const std::string& name, const ScenarioCase& one, const Outcome& record) {
  const auto readings = [](const Readings& all) {
    return nlohmann::json{{"median", all.median()}, {"range", {all.lowest(), all.highest()}}};
  };
  nlohmann::json json = {{"scenario", name},
                         {"direction", direction_text(one)},
                         {"size_bytes", one.size_bytes},
                         {"segment_bytes", one.segment_bytes},
                         {"native_gbps", readings(record.native)},
                         {"braid_gbps", readings(record.braid)},
                         {"ratio", ratio(record)},
                         {"repeat", record.braid.values.size()},
                         {"verified", record.verified},
                         {"verdict", record.verdict}};
  if (!record.limit.values.empty()) {
    json["limit_gbps"] = readings(record.limit);
    json["of_limit"] = of_limit(record);
  }
  return json;
}

void print_row(const std::string& name, const ScenarioCase& one, const Outcome& outcome) {
  fmt::print("{:<10} {:<5} {:>6} {:>8}  {}  {:<8}  {}\n", name, direction_text(one),
             format_size(one.size_bytes),
             one.segment_bytes != 0 ? format_size(one.segment_bytes) : "", figures(outcome),
             verified_text(outcome), outcome.verdict);
  std::fflush(stdout);
}

// One direction after the other, but for what goes both ways.
Result<std::vector<ScenarioCase>> list_scenarios(const Arguments& arguments) {
  BRAID_LET(scenario, parse_scenario(arguments.scenario));
  BRAID_LET(asked, read_lists(arguments));
  BRAID_LET(segment, parse_size(arguments.segment));
  const bool is_batch = scenario == Scenario::kBatch;
  std::vector<ScenarioCase> cases;
  for (const Direction direction : asked.directions)
    for (const uint64_t size : asked.sizes) {
      if (is_batch && (segment == 0 || segment % 8 != 0))
        return Status::error("'" + arguments.segment + "' is not a segment's size",
                             "Write a multiple of 8 bytes");
      if (is_batch && size % segment != 0)
        return Status::error("a batch of " + format_size(size) + " is not whole segments of " +
                             arguments.segment);
      cases.push_back({.scenario = scenario,
                       .direction = direction,
                       .size_bytes = size,
                       .segment_bytes = is_batch ? segment : 0,
                       .repeat = arguments.repeat,
                       .with_limit = arguments.with_limit,
                       .is_warm = arguments.server.empty()});
    }
  if (scenario == Scenario::kBoth) cases.resize(asked.sizes.size());
  return cases;
}

Result<bool> run_scenarios(const Arguments& arguments) {
  BRAID_LET(cases, list_scenarios(arguments));
  BRAID_LET(driver, open_server(arguments.server));
  return measure(
      arguments, cases,
      [&](const Options& options, uint64_t max_bytes) {
        return ScenarioBench::open(driver, options, cases.front().scenario, arguments.target,
                                   max_bytes, arguments.seed);
      },
      [&](const ScenarioCase& one, const Outcome& record) {
        print_row(arguments.scenario, one, record);
        return to_json(arguments.scenario, one, record);
      });
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
  command->add_option("--sizes", arguments->sizes, "sizes to copy")->capture_default_str();
  command->add_option("--target", arguments->target, "GPU to copy to or from")
      ->capture_default_str();
  command
      ->add_option("--paths", arguments->paths,
                   "paths to use at most, the direct one included (default: one a GPU)")
      ->delimiter(',');
  command
      ->add_option(
          "--repeat", arguments->repeat,
          "rounds: one copy of each kind after a pause, then three that follow one another")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  command
      ->add_flag("--limit,!--no-limit", arguments->with_limit,
                 "measure in turns what direct copies to every GPU at once reach, and compare "
                 "with it (default; --no-limit saves its time)")
      ->default_str("");
  command->add_option("--scenario", arguments->scenario,
                      "instead of pinned linear copies: batch (scattered segments), both "
                      "(directions at once), every-gpu (a copy each at once), pageable");
  command->add_option("--segment", arguments->segment, "bytes of a batch's segments")
      ->capture_default_str();
  command->add_option("--json", arguments->json_file,
                      "write the records to this file (docs/bench.md)");
  command->add_option("--seed", arguments->seed, "of the random bytes")->capture_default_str();
  command->footer(
      "Each copy is timed alone, between two events on its stream.\n"
      "Options of braid itself are read from the environment (docs/options.md), e.g. "
      "BRAID_MOVER=kernel.");
  command->callback([arguments, command, &exit_code] {
    const Status status = check_arguments(*command, *arguments);
    const auto verified = !status.ok()                  ? Result<bool>(status)
                          : arguments->scenario.empty() ? run_bench(*arguments)
                                                        : run_scenarios(*arguments);
    if (!verified.ok())
      exit_code = fail(verified.status());
    else if (!verified.value())
      exit_code = fail(Status::error("some copies had wrong bytes"));
  });
}

}  // namespace braid::tools
