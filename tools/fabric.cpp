// `braid fabric`: what the network of this host can do, and how fast the engine is on it.
#include <fmt/core.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/units.h"
#include "bench/fabric/limited_rails.h"
#include "bench/fabric/race.h"
#include "fabric/ofi/domain.h"
#include "fabric/ofi/library.h"
#include "tools/commands.h"
#include "tools/fabric_demo.h"

namespace braid::tools {
namespace {

namespace ofi = fabric::ofi;

struct BenchOptions {
  std::vector<std::string> providers = {"tcp;ofi_rxm", "shm"};
  std::string pattern = "single";
  std::string sizes = "64,64K,1M";
  int turns = 7;
  std::string rails = "one";
  std::string json_file;
};

int doctor(const std::string& address) {
  const auto library = ofi::library();
  if (!library.ok()) return fail(library.status());
  const uint32_t version = library.value()->version();
  fmt::print("libfabric    {}.{}\n", FI_MAJOR(version), FI_MINOR(version));
  int working = 0;
  for (const ofi::Quirks* quirks : ofi::all_quirks()) {
    const auto domain = ofi::open_domain(*quirks, address);
    working += domain.ok();
    fmt::print("{:12} {}\n", quirks->provider,
               !domain.ok()                 ? domain.status().message()
               : quirks->listens_at_address ? fmt::format("works at {}", address)
                                            : "works, within this host");
  }
  fmt::print("GPU memory   no provider here is asked for it\n");
  return working > 0 ? 0 : 1;
}

nlohmann::json record_of(const std::string& provider, const std::string& pattern,
                         const bench::RaceResult& result) {
  return {{"provider", provider},
          {"pattern", pattern},
          {"size_bytes", result.size_bytes},
          {"rails", 1},
          {"braid_gbps", result.braid_gbps},
          {"against", "plain"},
          {"against_gbps", result.plain_gbps},
          {"ratio", result.ratio},
          {"verified", result.is_verified},
          {"page", "4K"}};
}

/// Prints a row for each size. False: wrong bytes.
bool bench_one(const BenchOptions& options, const ofi::Quirks& quirks,
               const std::vector<uint64_t>& sizes, nlohmann::json& records) {
  const bench::RaceOptions race{&quirks, options.pattern == "paged", sizes, options.turns};
  bool is_verified = true;
  for (const bench::RaceResult& result : bench::race(race)) {
    fmt::print("{:12} {:8} {:>9} {:>12.3f} {:>12.3f} {:>12.0f} {:>6.3f}{}\n", quirks.provider,
               options.pattern, format_size(result.size_bytes), result.braid_gbps,
               result.plain_gbps, result.braid_gbps * 1e9 / static_cast<double>(result.size_bytes),
               result.ratio, result.is_verified ? "" : "  WRONG BYTES");
    records.push_back(record_of(quirks.provider, options.pattern, result));
    is_verified = is_verified && result.is_verified;
  }
  return is_verified;
}

/// In a process of its own, since one that has loaded libfabric must not fork.
bool bench_apart(const BenchOptions& options, const ofi::Quirks& quirks,
                 const std::vector<uint64_t>& sizes, nlohmann::json& records) {
  int ends[2];
  std::fflush(nullptr);
  if (pipe(ends) != 0) return false;
  const pid_t process = fork();
  if (process == 0) {
    close(ends[0]);
    const bool is_verified = bench_one(options, quirks, sizes, records);
    const std::string text = records.dump();
    const bool is_said =
        write(ends[1], text.data(), text.size()) == static_cast<ssize_t>(text.size());
    std::fflush(stdout);
    _exit(is_verified && is_said ? 0 : 1);
  }
  close(ends[1]);
  std::string text;
  char part[4096];
  for (ssize_t got = 0; (got = read(ends[0], part, sizeof part)) > 0;)
    text.append(part, static_cast<size_t>(got));
  close(ends[0]);
  int status = 1;
  waitpid(process, &status, 0);
  if (status != 0) return false;
  records = nlohmann::json::parse(text);
  return true;
}

/// What cannot be measured here is waived, and no failure.
int bench_limited_rails(const BenchOptions& options) {
  bench::LimitedRailsOptions race;
  race.turns = std::min(options.turns, 64);
  const bench::LimitedRailsResult result = bench::race_limited_rails(race);
  nlohmann::json record = {{"provider", "tcp;ofi_rxm"}, {"pattern", "single"},
                           {"rails", race.rails},       {"megabit", race.megabit},
                           {"against", "sum of rails"}, {"against_gbps", result.sum_gbps},
                           {"waived", result.waived}};
  if (result.waived.empty()) {
    fmt::print("{} rails of {} Mbit/s: {:.4f} GB/s of {:.4f}, ratio {:.3f}{}\n", race.rails,
               race.megabit, result.braid_gbps, result.sum_gbps, result.ratio,
               result.is_verified ? "" : "  WRONG BYTES");
    record.update({{"braid_gbps", result.braid_gbps},
                   {"ratio", result.ratio},
                   {"verified", result.is_verified}});
  } else {
    fmt::print("waived: {}\n", result.waived);
  }
  if (!options.json_file.empty())
    std::ofstream(options.json_file) << nlohmann::json::array({record}).dump(2) << "\n";
  return result.waived.empty() && !result.is_verified ? 1 : 0;
}

int bench_all(const BenchOptions& options) {
  if (options.rails == "tbf") return bench_limited_rails(options);
  const auto sizes = parse_size_list(options.sizes);
  if (!sizes.ok()) return fail(sizes.status());
  const uint64_t largest = bench::largest_size_bytes(options.pattern == "paged");
  for (const uint64_t size_bytes : sizes.value())
    if (size_bytes == 0 || size_bytes > largest)
      return fail(Status::error("sizes are from 1 to " + format_size(largest)));
  nlohmann::json records = nlohmann::json::array();
  fmt::print("{:12} {:8} {:>9} {:>12} {:>12} {:>12} {:>6}\n", "provider", "pattern", "size",
             "braid GB/s", "plain GB/s", "braid op/s", "ratio");
  for (const std::string& provider : options.providers) {
    const ofi::Quirks* quirks = ofi::find_quirks(provider);
    if (quirks == nullptr)
      return fail(Status::error("braid does not know the provider '" + provider + "'"));
    if (!bench_apart(options, *quirks, sizes.value(), records))
      return fail(Status::error(provider + " does not work here, or moved wrong bytes",
                                "`braid fabric doctor` says what works"));
  }
  if (!options.json_file.empty()) std::ofstream(options.json_file) << records.dump(2) << "\n";
  return 0;
}

}  // namespace

void add_fabric_command(CLI::App& app, int& exit_code) {
  CLI::App* command =
      app.add_subcommand("fabric", "transfers between processes and hosts (docs/fabric.md)");
  command->require_subcommand(1);

  auto address = std::make_shared<std::string>("127.0.0.1");
  CLI::App* doctor_command =
      command->add_subcommand("doctor", "which of libfabric's providers work here");
  doctor_command->add_option("--address", *address, "of the network interface to listen at");
  doctor_command->callback([address, &exit_code] { exit_code = doctor(*address); });

  auto demo_options = std::make_shared<FabricDemoOptions>();
  CLI::App* demo = command->add_subcommand(
      "demo", "four rails on loopback: one is killed, a peer is stopped, every byte is verified");
  demo->add_option("--seconds", demo_options->seconds, "how long it takes")
      ->check(CLI::Range(2, 190));
  demo->add_option("--svg", demo_options->svg_file, "where the plot goes")->type_name("FILE");
  demo->add_flag("--corrupt", demo_options->corrupts)->group("");  // for its test
  demo->callback([demo_options, &exit_code] { exit_code = fabric_demo(*demo_options); });

  auto options = std::make_shared<BenchOptions>();
  CLI::App* bench = command->add_subcommand(
      "bench", "writes between two processes, against a raw libfabric loop in turns");
  bench->add_option("--provider", options->providers, "tcp;ofi_rxm, shm, net")->delimiter(',');
  bench->add_option("--pattern", options->pattern, "single writes, or pages of one write")
      ->check(CLI::IsMember({"single", "paged"}));
  bench->add_option("--sizes", options->sizes, "of writes, or of pages: 64,64K,1M")
      ->type_name("LIST");
  bench
      ->add_option("--rails", options->rails,
                   "tbf: four of 400 Mbit/s each between network namespaces, against their sum; "
                   "needs root")
      ->check(CLI::IsMember({"one", "tbf"}));
  bench->add_option("--turns", options->turns, "medians of so many")->check(CLI::Range(1, 1000));
  bench->add_option("--json", options->json_file, "also write the records there")
      ->type_name("FILE");
  bench->callback([options, &exit_code] { exit_code = bench_all(*options); });
}

}  // namespace braid::tools
