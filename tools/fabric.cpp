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
#include "bench/fabric/race.h"
#include "fabric/ofi/domain.h"
#include "fabric/ofi/library.h"
#include "tools/commands.h"

namespace braid::tools {
namespace {

namespace ofi = fabric::ofi;

struct BenchOptions {
  std::vector<std::string> providers = {"tcp;ofi_rxm", "shm"};
  std::string pattern = "single";
  std::string sizes = "64,64K,1M";
  int turns = 7;
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

int bench_all(const BenchOptions& options) {
  const auto sizes = parse_size_list(options.sizes);
  if (!sizes.ok()) return fail(sizes.status());
  nlohmann::json records = nlohmann::json::array();
  fmt::print("{:12} {:8} {:>9} {:>12} {:>12} {:>12} {:>6}\n", "provider", "pattern", "size",
             "braid GB/s", "plain GB/s", "braid op/s", "ratio");
  for (const std::string& provider : options.providers) {
    const ofi::Quirks* quirks = ofi::find_quirks(provider);
    if (quirks == nullptr)
      return fail(Status::error("braid does not know the provider '" + provider + "'"));
    bench::RaceOptions race{quirks, options.pattern == "paged", sizes.value(), options.turns};
    for (const bench::RaceResult& result : bench::race(race)) {
      fmt::print("{:12} {:8} {:>9} {:>12.3f} {:>12.3f} {:>12.0f} {:>6.3f}{}\n", provider,
                 options.pattern, format_size(result.size_bytes), result.braid_gbps,
                 result.plain_gbps,
                 result.braid_gbps * 1e9 / static_cast<double>(result.size_bytes), result.ratio,
                 result.is_verified ? "" : "  WRONG BYTES");
      records.push_back(record_of(provider, options.pattern, result));
      if (!result.is_verified) return 1;
    }
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

  auto options = std::make_shared<BenchOptions>();
  CLI::App* bench = command->add_subcommand(
      "bench", "writes between two processes, against a raw libfabric loop in turns");
  bench->add_option("--provider", options->providers, "tcp;ofi_rxm, shm, net")->delimiter(',');
  bench->add_option("--pattern", options->pattern, "single writes, or pages of one write")
      ->check(CLI::IsMember({"single", "paged"}));
  bench->add_option("--sizes", options->sizes, "of writes, or of pages: 64,64K,1M")
      ->type_name("LIST");
  bench->add_option("--turns", options->turns, "medians of so many")->check(CLI::Range(1, 1000));
  bench->add_option("--json", options->json_file, "also write the records there")
      ->type_name("FILE");
  bench->callback([options, &exit_code] { exit_code = bench_all(*options); });
}

}  // namespace braid::tools
