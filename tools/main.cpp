#include <fmt/core.h>

#include "tools/commands.h"

namespace braid::tools {

int fail(const Status& status) {
  fmt::print(stderr, "braid: {}\n", status.message());
  return 1;
}

}  // namespace braid::tools

int main(int argc, char** argv) {
  CLI::App app{
      "braid: one copy between host memory and a GPU, over every PCIe link of the server.\n"
      "`braid run -- python3 serve.py` speeds up an unchanged program; `braid doctor` says whether "
      "it can."};
  app.require_subcommand(1);
  app.set_version_flag("--version", "braid " BRAID_VERSION);
  int exit_code = 0;
  braid::tools::add_bench_command(app, exit_code);
  braid::tools::add_topo_command(app, exit_code);
  CLI11_PARSE(app, argc, argv);
  return exit_code;
}
