#include "tools/fabric_bench.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "base/units.h"
#include "bench/fabric/race.h"
#include "fabric/library/rail_address.h"
#include "fabric/ofi/domain.h"
#include "tools/commands.h"
#include "tools/in_child.h"
#include "tools/locate.h"
#include "tools/numbers.h"
#include "tools/write_file.h"
#include "topology/machine.h"

namespace braid::tools {
namespace {

namespace fs = std::filesystem;
namespace ofi = fabric::ofi;
using bench::Waiver;
using nlohmann::json;

constexpr int kRailsMax = 8;
constexpr const char* kUsualSizes = "64,64K,1M";
constexpr const char* kUsualPages = "8K,64K";

struct BenchOptions {
  std::vector<std::string> providers = {"tcp;ofi_rxm", "shm"};
  std::vector<std::string> against = {"plain"};
  std::string pattern = "single";
  std::string sizes;  // empty: those of the pattern
  std::string python = "python3";
  std::string json_file;
  int rails = 1;
  int turns = 7;
  int turn_ms = 200;
  bool skips_missing = false;
  bool are_pages_huge = false;
  bool are_rails_limited = false;
};

/// What one provider's process has found out, which travels as JSON.
struct Findings {
  json records = json::array();
  bool is_verified = true;
  std::set<std::string> failed, missing, not_applicable;  // opponents
  std::string error;                                      // nothing could be raced

  json to_json() const {
    return {{"records", records}, {"is_verified", is_verified},       {"failed", failed},
            {"missing", missing}, {"not_applicable", not_applicable}, {"error", error}};
  }
  static Findings of(const json& text) {
    return {text.at("records"), text.at("is_verified"),    text.at("failed"),
            text.at("missing"), text.at("not_applicable"), text.at("error")};
  }
};

fs::path peer_folder() { return install_root() / "share" / "braid" / "fabric_peers"; }

Result<bench::PeerCommand> find_peer(const std::string& name, const std::string& python) {
  const bool is_path = name.find('/') != std::string::npos || name.ends_with(".py");
  const fs::path file = is_path ? fs::path(name) : peer_folder() / (name + "_peer.py");
  std::error_code ignored;
  if (fs::is_regular_file(file, ignored))
    return bench::PeerCommand{is_path ? file.stem().string() : name, python, fs::absolute(file)};
  return Status::error("there is nothing to race against by the name '" + name + "'",
                       "Write plain, engine, nixl, mooncake, or the path of a program (" +
                           (peer_folder() / "peer.py").string() + " says how to write one)");
}

bench::Pattern pattern_of(const std::string& name) {
  const auto* found =
      std::find(std::begin(bench::kPatternNames), std::end(bench::kPatternNames), name);
  return static_cast<bench::Pattern>(found - std::begin(bench::kPatternNames));
}

double gbps_of(double rate, uint64_t size_bytes) {
  return rate * static_cast<double>(size_bytes) / 1e9;
}

class Bench {
 public:
  Bench(const BenchOptions& options, bench::RaceOptions race)
      : options_(options), race_(std::move(race)) {}

  static void print_header() {
    fmt::print("{:13} {:8} {:>6} {:>11} {:>9}   {:13} {:>8} {:>9} {:>6}  {}\n", "provider",
               "pattern", "size", "braid GB/s", "a second", "against", "GB/s", "a second", "ratio",
               "range");
  }

  Findings run() {
    const auto report = bench::race(race_, [this](uint64_t size_bytes, int turn) {
      if (is_terminal_)
        fmt::print(stderr, "\r\033[K{} {} {}: turn {} of {}", provider(), options_.pattern,
                   format_size(size_bytes), turn, options_.turns);
    });
    if (is_terminal_) fmt::print(stderr, "\r\033[K");
    if (!report.ok()) {
      findings_.error = report.status().message();
      return findings_;
    }
    for (const bench::RaceResult& result : report.value().results) add(result);
    for (const Waiver& waiver : report.value().waivers) add(waiver, report.value().results);
    return findings_;
  }

 private:
  std::string provider() const { return race_.rails.provider(); }

  json record(const bench::RaceResult& result, const std::string& against) const {
    return {{"provider", provider()},
            {"pattern", options_.pattern},
            {"size_bytes", result.size_bytes},
            {"rails", options_.rails},
            {"braid_gbps", gbps_of(result.braid_rate.median, result.size_bytes)},
            {"braid_per_s", result.braid_rate.median},
            {"against", against},
            {"against_gbps", nullptr},
            {"ratio", nullptr},
            {"verified", result.is_verified},
            {"turns", options_.turns},
            {"page", options_.are_pages_huge ? "2M" : "4K"}};
  }

  void add(const bench::RaceResult& result) {
    findings_.is_verified = findings_.is_verified && result.is_verified;
    if (result.opponents.empty()) {
      print_row(result, "", "");
      findings_.records.push_back(record(result, ""));
    }
    for (const bench::Opponent& opponent : result.opponents) {
      print_row(result, opponent.name,
                fmt::format("{:>8.3f} {:>9.0f} {:>6.3f}  {:.2f} to {:.2f}{}",
                            gbps_of(opponent.rate.median, result.size_bytes), opponent.rate.median,
                            opponent.ratio.median, opponent.ratio.least, opponent.ratio.most,
                            opponent.is_verified ? "" : "  WRONG BYTES"));
      json all = record(result, opponent.name);
      all["against_gbps"] = gbps_of(opponent.rate.median, result.size_bytes);
      all["against_per_s"] = opponent.rate.median;
      all["ratio"] = opponent.ratio.median;
      all["ratio_least"] = opponent.ratio.least;
      all["ratio_most"] = opponent.ratio.most;
      all["verified"] = result.is_verified && opponent.is_verified;
      findings_.records.push_back(all);
      findings_.is_verified = findings_.is_verified && opponent.is_verified;
    }
  }

  void print_row(const bench::RaceResult& result, const std::string& against,
                 const std::string& figures) const {
    const double rate = result.braid_rate.median;
    fmt::print("{:13} {:8} {:>6} {:>11.3f} {:>9.0f}   {:13} {}\n", provider(), options_.pattern,
               format_size(result.size_bytes), gbps_of(rate, result.size_bytes), rate, against,
               result.is_verified ? figures : figures + "  BRAID: WRONG BYTES");
  }

  void add(const Waiver& waiver, const std::vector<bench::RaceResult>& results) {
    fmt::print("{:13} not against {}: {}\n", provider(), waiver.name, waiver.cause);
    switch (waiver.kind) {
      case Waiver::Kind::kFailed: findings_.failed.insert(waiver.name); break;
      case Waiver::Kind::kMissing: findings_.missing.insert(waiver.name); break;
      case Waiver::Kind::kNotApplicable: findings_.not_applicable.insert(waiver.name); break;
    }
    for (const bench::RaceResult& result : results) {
      json waived = record(result, waiver.name);
      waived["waived"] = waiver.cause;
      findings_.records.push_back(waived);
    }
  }

  const BenchOptions& options_;
  const bench::RaceOptions race_;
  const bool is_terminal_ = isatty(STDERR_FILENO) != 0;
  Findings findings_;
};

/// In a process of its own, since one that has loaded libfabric must not fork.
Findings bench_apart(const BenchOptions& options, const bench::RaceOptions& race) {
  const auto found = ask_in_child(
      [&]() -> Result<std::string> { return Bench(options, race).run().to_json().dump(); });
  if (found.ok()) return Findings::of(json::parse(found.value()));
  Findings lost;
  lost.error = std::string(race.rails.provider()) + " does not work here";
  return lost;
}

/// Without quirks: there is no such provider.
bench::Rails rails_of(const std::string& provider, int count) {
  if (provider == "local") return {&ofi::shm_quirks(), count, true};
  return {ofi::find_quirks(provider), count};
}

Result<bench::RaceOptions> race_of(const BenchOptions& options) {
  bench::RaceOptions race;
  race.pattern = pattern_of(options.pattern);
  const std::string usual = race.pattern == bench::Pattern::kPaged ? kUsualPages : kUsualSizes;
  const auto sizes = parse_size_list(options.sizes.empty() ? usual : options.sizes);
  if (!sizes.ok()) return sizes.status();
  race.are_pages_huge = options.are_pages_huge;
  race.sizes_bytes =
      race.pattern == bench::Pattern::kBarrier ? std::vector<uint64_t>{0} : sizes.value();
  race.turns = options.turns;
  race.turn_seconds = options.turn_ms / 1e3;
  race.is_against_plain = race.is_against_engine = false;
  for (const std::string& name : options.against) {
    if (name == "plain") {
      race.is_against_plain = true;
      continue;
    }
    if (name == "engine") {
      race.is_against_engine = true;
      continue;
    }
    const auto peer = find_peer(name, options.python);
    if (!peer.ok()) return peer.status();
    race.peers.push_back(peer.value());
  }
  const uint64_t largest = bench::largest_size_bytes(race.pattern);
  for (const uint64_t size_bytes : sizes.value())
    if (size_bytes == 0 || size_bytes > largest)
      return Status::error("--sizes: " + format_size(size_bytes) + " is not from 1 to " +
                           format_size(largest) + ", as the pattern '" + options.pattern +
                           "' needs");
  return race;
}

/// What was asked for, and could not be done.
Status shortcomings(const BenchOptions& options, const Findings& all) {
  if (!all.is_verified) return Status::error("wrong bytes: see the table");
  if (!all.failed.empty()) return Status::error(*all.failed.begin() + " failed: see above");
  for (const std::string& name : all.missing)
    if (!options.skips_missing)
      return Status::error(name + " is not installed: see above",
                           "--skip-missing leaves out what is not");
  for (const std::string& name : all.not_applicable) {
    const auto is_raced = [&](const json& record) {
      return record["against"] == name && !record.contains("waived");
    };
    if (std::none_of(all.records.begin(), all.records.end(), is_raced) &&
        all.missing.count(name) == 0)
      return Status::error(name + " has nothing like what was asked for: see above");
  }
  return {};
}

/// At 127.0.0.1 and the next addresses, which a host without its loopback interface has not.
Status check_addresses(const bench::Rails& rails) {
  std::vector<std::string> addresses;
  for (int i = 1; i <= rails.count; ++i) addresses.push_back("127.0.0." + std::to_string(i));
  return fabric::check_rail_addresses({.provider = rails.provider()}, addresses,
                                      topology::host_nics());
}

/// In a child: whoever has loaded libfabric must not fork.
Status check_works(const ofi::Quirks& provider) {
  const auto opened = ask_in_child([&]() -> Result<std::string> {
    const auto domain = ofi::open_domain(provider, "127.0.0.1");
    return domain.ok() ? Result<std::string>(std::string()) : domain.status();
  });
  if (opened.ok()) return {};
  return Status::error(opened.status().message(), "`braid fabric doctor` says what works");
}

int bench_all(const BenchOptions& options) {
  if (options.are_rails_limited) return bench_limited_rails(options.turns, options.json_file);
  auto race = race_of(options);
  if (!race.ok()) return fail(race.status());
  std::vector<bench::Rails> providers;
  for (const std::string& provider : options.providers) {
    providers.push_back(rails_of(provider, options.rails));
    if (providers.back().quirks == nullptr)
      return fail(Status::error("braid does not know the provider '" + provider + "'",
                                "`braid fabric doctor` lists those that it knows"));
    if (const Status status = check_addresses(providers.back()); !status.ok()) return fail(status);
    if (const Status status = check_works(*providers.back().quirks); !status.ok())
      return fail(status);
  }
  if (!options.json_file.empty())
    if (const Status status = check_writable(options.json_file); !status.ok()) return fail(status);
  Findings all;
  Status status;
  Bench::print_header();
  for (const bench::Rails& rails : providers) {
    race.value().rails = rails;
    const Findings found = bench_apart(options, race.value());
    if (!found.error.empty()) {  // the records of those before it are written all the same
      status = Status::error(found.error, "`braid fabric doctor` says what works");
      break;
    }
    all.records.insert(all.records.end(), found.records.begin(), found.records.end());
    all.is_verified = all.is_verified && found.is_verified;
    all.failed.insert(found.failed.begin(), found.failed.end());
    all.missing.insert(found.missing.begin(), found.missing.end());
    all.not_applicable.insert(found.not_applicable.begin(), found.not_applicable.end());
  }
  if (status.ok()) status = shortcomings(options, all);
  if (!options.json_file.empty()) {
    const Status written = write_file(options.json_file, all.records.dump(2) + "\n");
    if (status.ok()) status = written;
  }
  return status.ok() ? 0 : fail(status);
}

}  // namespace

void add_fabric_bench_command(CLI::App& fabric, int& exit_code) {
  auto options = std::make_shared<BenchOptions>();
  CLI::App* command = fabric.add_subcommand(
      "bench", "writes between two processes, in turns with others' (docs/fabric.md)");
  command
      ->add_option("--provider", options->providers,
                   "tcp;ofi_rxm, shm, net, local (its buffers mapped, the raw loop over shm)")
      ->delimiter(',');
  command
      ->add_option("--against", options->against,
                   "plain: a raw libfabric loop; engine: braid without the threads of its library; "
                   "nixl, mooncake: Python wheels, if installed; or "
                   "the path of a program")
      ->delimiter(',');
  command
      ->add_option("--pattern", options->pattern,
                   "single writes; pages of one write; parts for a group of four; barriers of it")
      ->check(CLI::IsMember(std::vector<std::string>(std::begin(bench::kPatternNames),
                                                     std::end(bench::kPatternNames))));
  command->add_option("--sizes", options->sizes, "of writes, pages or parts")
      ->type_name("LIST")
      ->default_str(std::string(kUsualSizes) + "; paged: " + kUsualPages);
  command->add_option("--rails", options->rails, "of braid's, at 127.0.0.1 and the next addresses")
      ->check(between(1, kRailsMax));
  command->add_flag("--limited-rails", options->are_rails_limited,
                    "instead: four rails of 400 Mbit/s each between network namespaces, against "
                    "their sum; needs root");
  command->add_option("--turns", options->turns, "medians of so many")->check(between(1, 1000));
  command->add_option("--turn-ms", options->turn_ms, "about so long is a turn of braid's")
      ->check(between(1, 1000));
  command->add_option("--python", options->python, "that has the wheels")->type_name("FILE");
  command->add_flag("--skip-missing", options->skips_missing,
                    "it is no failure that one of --against is not installed");
  command->add_flag("--huge-pages", options->are_pages_huge, "for the memory of all");
  command->add_option("--json", options->json_file, "also write the records there")
      ->type_name("FILE");
  command->callback([options, &exit_code] { exit_code = bench_all(*options); });
}

}  // namespace braid::tools
