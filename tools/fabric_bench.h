// `braid fabric bench`: writes between two processes, in turns with other ways to make them.
#pragma once

#include <CLI/CLI.hpp>

namespace braid::tools {

void add_fabric_bench_command(CLI::App& fabric, int& exit_code);

}  // namespace braid::tools
