// `braid fabric`: what the network of this host can do, and how fast the engine is on it.
#include <memory>
#include <string>

#include "tools/commands.h"
#include "tools/fabric_bench.h"
#include "tools/fabric_demo.h"
#include "tools/fabric_doctor.h"
#include "tools/numbers.h"

namespace braid::tools {

void add_fabric_command(CLI::App& app, int& exit_code) {
  CLI::App* command =
      app.add_subcommand("fabric", "transfers between processes and hosts (docs/fabric.md)");
  command->require_subcommand(1);

  auto address = std::make_shared<std::string>("127.0.0.1");
  CLI::App* doctor_command = command->add_subcommand(
      "doctor", "which NICs, providers and ways into GPU memory this host has");
  doctor_command->add_option("--address", *address,
                             "of the network interface to listen at; for efa the name of a device");
  doctor_command->callback([address, &exit_code] { exit_code = fabric_doctor(*address); });

  auto demo_options = std::make_shared<FabricDemoOptions>();
  CLI::App* demo = command->add_subcommand(
      "demo", "four rails on loopback: one is killed, a peer is stopped, every byte is verified");
  demo->add_option("--seconds", demo_options->seconds, "how long it takes")->check(between(2, 190));
  demo->add_option("--svg", demo_options->svg_file, "where the plot goes")->type_name("FILE");
  demo->add_flag("--corrupt", demo_options->corrupts)->group("");  // for its test
  demo->callback([demo_options, &exit_code] { exit_code = fabric_demo(*demo_options); });
  add_fabric_bench_command(*command, exit_code);
}

}  // namespace braid::tools
