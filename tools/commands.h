// The commands of `braid`: one file each, one line each in main.cpp. A command adds itself to the
// application and, when chosen, leaves its exit code in `exit_code`. Errors go to stderr through
// `fail`, which says what was wrong and the remedy.
#pragma once

#include <CLI/CLI.hpp>

#include <map>
#include <string>
#include <vector>

#include "base/status.h"

namespace braid::tools {

/// Prints "braid: <message>" on stderr and returns the exit code of a usage error or failure.
int fail(const Status& status);

/// Whether a file can be written at `path`, which is asked before the work whose result goes there.
Status check_writable(const std::string& path);

/// Whether a new file can take the place of `path`, or appear there: only a regular file is
/// replaced, and its folder must take the new one. `remedy`: where it is none.
Status check_replaceable(const std::string& path, const std::string& remedy);

/// --server of every command.
void add_server_option(CLI::App& command, std::string& server);

/// --lend of `braid run`.
void add_lend_option(CLI::App& command, std::string& lend);

/// The options of `braid run` that the environment can set too. Those given go to `given`, by the
/// names of their variables.
void add_braid_options(CLI::App& command, std::map<std::string, std::string>& given);

/// "Usage: braid run [OPTIONS] -- PROGRAM [ARGUMENTS...]"
void show_program_in_usage(CLI::App& command);

/// The exit code of `braid run` when it fails itself, as of env, timeout and docker: programs
/// have others.
inline constexpr int kRunFailed = 125;

void add_bench_command(CLI::App& app, int& exit_code);
void add_topo_command(CLI::App& app, int& exit_code);
/// `program`: the words after "--", exactly as the shell gave them; must outlive parsing.
void add_run_command(CLI::App& app, const std::vector<std::string>& program, int& exit_code);
void add_compare_command(CLI::App& app, const std::vector<std::string>& program, int& exit_code);
void add_tune_command(CLI::App& app, int& exit_code);
void add_doctor_command(CLI::App& app, int& exit_code);
/// `fabric doctor` and `fabric bench`.
void add_fabric_command(CLI::App& app, int& exit_code);
/// `serve`, `segments`, `rails` and `tebench`.
void add_transfer_commands(CLI::App& app, int& exit_code);
/// `simulate serving`.
void add_simulate_command(CLI::App& app, int& exit_code);
/// `simulate transfer`; after whatever else adds `simulate`.
void add_simulate_transfer_command(CLI::App& app, int& exit_code);
/// `ps`, `waits` and `switch`.
void add_process_commands(CLI::App& app, int& exit_code);

/// The hidden command that `braid doctor` starts under `braid run`: kProbeCopies copies of so many
/// bytes for each GPU.
/// Returns its exit code.
inline constexpr int kProbeCopies = 4;
int probe(size_t size_bytes);

}  // namespace braid::tools
