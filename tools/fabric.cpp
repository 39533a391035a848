// `braid fabric`: what the network of this host can do, and how fast the engine is on it.
#include <fmt/core.h>

#include <memory>
#include <string>

#include "fabric/ofi/domain.h"
#include "fabric/ofi/library.h"
#include "tools/commands.h"
#include "tools/fabric_bench.h"
#include "tools/fabric_demo.h"

namespace braid::tools {
namespace {

namespace ofi = fabric::ofi;

std::string works(const ofi::Quirks& quirks, const std::string& address) {
  if (!quirks.reaches_hosts) return "works, within this host";
  return quirks.takes_device ? "works" : "works at " + address;
}

int doctor(const std::string& address) {
  const auto library = ofi::library();
  if (!library.ok()) return fail(library.status());
  const uint32_t version = library.value()->version();
  fmt::print("libfabric     {}.{}\n", FI_MAJOR(version), FI_MINOR(version));
  int working = 0;
  for (const ofi::Quirks* quirks : ofi::all_quirks()) {
    const auto domain = ofi::open_domain(*quirks, address);
    working += domain.ok();
    fmt::print("{:13} {}\n", quirks->provider,
               domain.ok() ? works(*quirks, address) : domain.status().message());
  }
  fmt::print("GPU memory    no provider here is asked for it\n");
  return working > 0 ? 0 : 1;
}

}  // namespace

void add_fabric_command(CLI::App& app, int& exit_code) {
  CLI::App* command =
      app.add_subcommand("fabric", "transfers between processes and hosts (docs/fabric.md)");
  command->require_subcommand(1);

  auto address = std::make_shared<std::string>("127.0.0.1");
  CLI::App* doctor_command =
      command->add_subcommand("doctor", "which of libfabric's providers work here");
  doctor_command->add_option("--address", *address,
                             "of the network interface to listen at; for efa the name of a device");
  doctor_command->callback([address, &exit_code] { exit_code = doctor(*address); });

  auto demo_options = std::make_shared<FabricDemoOptions>();
  CLI::App* demo = command->add_subcommand(
      "demo", "four rails on loopback: one is killed, a peer is stopped, every byte is verified");
  demo->add_option("--seconds", demo_options->seconds, "how long it takes")
      ->check(CLI::Range(2, 190));
  demo->add_option("--svg", demo_options->svg_file, "where the plot goes")->type_name("FILE");
  demo->add_flag("--corrupt", demo_options->corrupts)->group("");  // for its test
  demo->callback([demo_options, &exit_code] { exit_code = fabric_demo(*demo_options); });
  add_fabric_bench_command(*command, exit_code);
}

}  // namespace braid::tools
