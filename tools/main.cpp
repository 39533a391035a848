#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <string_view>
#include <system_error>

#include "braid/transfer_abi.h"
#include "tools/commands.h"
#include "tools/help.h"
#include "tools/locate.h"
#include "tools/numbers.h"
#include "tools/write_file.h"

namespace braid::tools {

int fail(const Status& status) {
  // Of a transfer: scripts look for the name of the cause.
  const std::string cause = status.cause() == 0 || status.cause() == BRAID_TRANSFER_NO_CAUSE
                                ? ""
                                : fmt::format(" [{}]", braid_transfer_cause_name(status.cause()));
  fmt::print(stderr, "braid: {}{}\n", status.message(), cause);
  return 1;
}

Status check_writable(const std::string& path) {
  namespace fs = std::filesystem;
  std::error_code ignored;
  const fs::path folder = fs::absolute(path).parent_path();
  // The "." says of a folder that is none what opening a file in it would say.
  const fs::path at = fs::exists(path, ignored) ? fs::path(path) : folder / ".";
  if (fs::is_directory(path, ignored))
    errno = EISDIR;
  else if (access(at.c_str(), W_OK) == 0)
    return {};
  return cannot_write(path, errno);
}

Status check_replaceable(const std::string& path, const std::string& remedy) {
  namespace fs = std::filesystem;
  std::error_code ignored;
  const fs::file_status there = fs::status(path, ignored);
  if (!fs::exists(there) || fs::is_directory(there)) return check_writable(path);
  if (!fs::is_regular_file(there))
    return Status::error(fmt::format("'{}' is no regular file", path), remedy);
  const fs::path folder = fs::canonical(path, ignored).parent_path();
  return access(folder.c_str(), W_OK) == 0 ? Status() : cannot_write(path, errno);
}

void add_server_option(CLI::App& command, std::string& server) {
  command
      .add_option("--server", server,
                  "an emulated server instead of this machine: a profile's name (h20x8) or a JSON "
                  "file")
      ->type_name("PROFILE")
      ->check([](const std::string& text) {
        return text.empty() ? "names no server: write h20x8, or leave it out" : "";
      });
}

void show_program_in_usage(CLI::App& command) {
  const auto usage = std::make_shared<HelpFormatter>();
  usage->label("OPTIONS", "OPTIONS] -- PROGRAM [ARGUMENTS...");  // it adds the outer brackets
  command.formatter(usage);
}

namespace {

// Cuts the program of `braid run ... -- PROGRAM ARGUMENTS...`, and of `braid compare`, off the
// command line: CLI11 would read meaning into its words ("[1,2]" becomes two).
std::vector<std::string> take_program(int& argc, char** argv) {
  char** const end = argv + argc;
  const std::string_view command = argc < 2 ? "" : argv[1];
  if (command != "run" && command != "compare") return {};
  char** const separator =
      std::find_if(argv, end, [](const char* word) { return std::string_view(word) == "--"; });
  argc = static_cast<int>(separator - argv);
  return separator == end ? std::vector<std::string>()
                          : std::vector<std::string>(separator + 1, end);
}

// `exit_code`, unless what was printed did not get out.
int check_output(int exit_code) {
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return exit_code;
  return fail(Status::error("standard output cannot be written"));
}

// Names those that are not hidden.
std::string commands_of(const CLI::App& app) {
  std::string names;
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; }))
    if (!command->get_group().empty()) names += (names.empty() ? "" : ", ") + command->get_name();
  return names;
}

// CLI11 says of a command that is unknown or missing only that one is required.
Status check_command(const CLI::App& app, int argc, char** argv) {
  const CLI::App* command = &app;
  std::string words = "braid";
  for (int i = 1; command->get_require_subcommand_min() > 0; ++i) {
    if (i < argc && argv[i][0] == '-') return {};  // --help
    const auto found = command->get_subcommands(
        [&](const CLI::App* one) { return i < argc && one->get_name() == argv[i]; });
    if (found.empty())
      return Status::error(
          i < argc ? fmt::format("'{}' is not a command", argv[i])
                   : fmt::format("'{}' needs a command", words),
          fmt::format("The commands are {}; see {} --help", commands_of(*command), words));
    command = found.front();
    words += " " + command->get_name();
  }
  return {};
}

// "fabric demo ", the commands that the command line has named.
std::string named_commands(const CLI::App& app) {
  std::string words;
  for (auto chosen = app.get_subcommands(); !chosen.empty();
       chosen = chosen.front()->get_subcommands())
    words += chosen.front()->get_name() + " ";
  return words;
}

// CLI11 names words that it does not know from the last to the first, and says of a number that
// is too large for its option only that it cannot be converted.
std::string text_of(const CLI::App& app, const CLI::Error& error) {
  const std::string text = error.what();
  const std::vector<std::string> unknown = app.remaining(true);
  if (dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr && !unknown.empty())
    return fmt::format("'{}' is no option or argument of this command", unknown.front());
  const std::string_view start = "Could not convert: ";
  const size_t word = text.find(" = ");
  if (!text.starts_with(start) || word == std::string::npos) return text;
  return fmt::format("{}: '{}' is out of range", text.substr(start.size(), word - start.size()),
                     text.substr(word + 3));
}

}  // namespace
}  // namespace braid::tools

int main(int argc, char** argv) {
  // What this command copies natively is not native with the interposer in it, as inside
  // `braid run -- bash`. `braid doctor`'s client alone must have it.
  if (argc > 1 && std::string_view(argv[1]) != "probe" && braid::tools::take_out_preload_library())
    execv((braid::tools::install_root() / "bin" / "braid").c_str(), argv);
  CLI::App app{
      "braid: one copy between host memory and a GPU, over every PCIe link of the server.\n"
      "`braid run -- python3 serve.py` speeds up an unchanged program; `braid doctor` says whether "
      "it can.",
      "braid"};
  app.require_subcommand(1);
  braid::tools::show_defaults(app);
  app.set_version_flag("--version", "braid " BRAID_VERSION);
  int exit_code = 0;
  const std::vector<std::string> program = braid::tools::take_program(argc, argv);
  braid::tools::add_run_command(app, program, exit_code);
  braid::tools::add_compare_command(app, program, exit_code);
  braid::tools::add_bench_command(app, exit_code);
  braid::tools::add_tune_command(app, exit_code);
  braid::tools::add_topo_command(app, exit_code);
  braid::tools::add_doctor_command(app, exit_code);
  braid::tools::add_fabric_command(app, exit_code);
  braid::tools::add_transfer_commands(app, exit_code);
  braid::tools::add_simulate_command(app, exit_code);
  braid::tools::add_simulate_transfer_command(app, exit_code);
  braid::tools::add_process_commands(app, exit_code);
  if (argc < 2) return fmt::print("{}", app.help()), braid::tools::check_output(0);
  if (const braid::Status known = braid::tools::check_command(app, argc, argv); !known.ok())
    return braid::tools::fail(known);
  braid::tools::expect_numbers(app);
  app.failure_message([](const CLI::App* failed, const CLI::Error& error) {
    return fmt::format("braid: {}. See braid {}--help\n", braid::tools::text_of(*failed, error),
                       braid::tools::named_commands(*failed));
  });
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (app.exit(error) == 0) return braid::tools::check_output(0);  // --help, --version
    return app.got_subcommand("run") ? braid::tools::kRunFailed : 1;
  } catch (const std::system_error& error) {  // fmt's, of more text than a buffer holds
    return braid::tools::fail(braid::Status::error(error.what()));
  }
  return braid::tools::check_output(exit_code);
}
