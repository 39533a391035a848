// `braid topo`: the server, its links, its network interfaces, and the paths to each GPU.
#include <fmt/core.h>

#include <memory>
#include <string>

#include "cuda/driver.h"
#include "tools/commands.h"
#include "tools/locate.h"
#include "tools/topo_text.h"
#include "topology/discover.h"
#include "topology/machine.h"
#include "topology/profile.h"

namespace braid::tools {
namespace {

struct TopoOptions {
  std::string server;
  bool json = false;
  bool nics = false;
};

Result<topology::Server> find_server(const std::string& profile) {
  if (profile.empty()) {
    const auto driver = cuda::open_driver();
    return driver.ok() ? topology::discover(driver.value()) : driver.status();
  }
  const auto path = find_profile(profile);
  return path.ok() ? topology::load_profile(path.value().string()) : path.status();
}

int topo(const TopoOptions& options) {
  if (options.nics) {
    const auto nics = topology::host_nics();
    fmt::print("{}", options.json ? nics_json(nics) : nics_text(nics));
    return 0;
  }
  const auto server = find_server(options.server);
  if (!server.ok()) return fail(server.status());
  fmt::print("{}", options.json ? topo_json(server.value()) : topo_text(server.value()));
  return 0;
}

}  // namespace

void add_topo_command(CLI::App& app, int& exit_code) {
  auto options = std::make_shared<TopoOptions>();
  CLI::App* command = app.add_subcommand(
      "topo", "show the server, its links and the paths from host memory to each GPU");
  add_server_option(*command, options->server);
  command->add_flag("--json", options->json,
                    "the same as JSON; its \"server\" is a profile (docs/profiles.md)");
  command
      ->add_flag("--nics", options->nics,
                 "the network interfaces of this host alone, which needs no GPU")
      ->excludes(command->get_option("--server"));
  command->callback([options, &exit_code] { exit_code = topo(*options); });
}

}  // namespace braid::tools
