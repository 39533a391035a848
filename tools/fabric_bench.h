// `braid fabric bench`: writes between two processes, in turns with other ways to make them.
#pragma once

#include <CLI/CLI.hpp>

#include <string>

namespace braid::tools {

void add_fabric_bench_command(CLI::App& fabric, int& exit_code);

/// Its `--limited-rails`. Returns the exit code: what cannot be measured here is waived, and no
/// failure. `json_file` may be empty.
int bench_limited_rails(int turns, const std::string& json_file);

}  // namespace braid::tools
