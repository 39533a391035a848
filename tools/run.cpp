// `braid run`: starts a program with libbraid_preload.so, on the real GPUs or on an emulated
// server. The program takes this process's place, so its exit code, signals and terminal are its
// own.
#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <map>

#include "base/options.h"
#include "base/try.h"
#include "cuda/driver.h"
#include "lending/visible_devices.h"
#include "multipath/cost_file.h"
#include "preload/process_path.h"
#include "preload/report.h"
#include "tools/commands.h"
#include "tools/in_child.h"
#include "tools/lend.h"
#include "tools/locate.h"
#include "tools/open_server.h"
#include "tools/program_file.h"
#include "topology/profile.h"

namespace braid::tools {
namespace {

namespace fs = std::filesystem;

constexpr int kCannotExecute = 126;  // as shells report it
constexpr int kNotFound = 127;

struct RunRequest {
  std::string server;                          // empty: the real GPUs
  std::string lend;                            // empty: no GPU is lent
  bool is_native = false;                      // without braid
  bool is_best_effort = false;                 // the program runs on machines without GPUs too
  std::map<std::string, std::string> options;  // environment variable -> text
};

// BRAID_RELAYS is --relays on the command line, and BRAID_STATS_FILE is --stats-file.
std::string flag_of(const std::string& variable) {
  std::string flag = "--" + variable.substr(std::strlen("BRAID_"));
  std::transform(flag.begin(), flag.end(), flag.begin(), [](unsigned char letter) {
    return letter == '_' ? '-' : static_cast<char>(std::tolower(letter));
  });
  return flag;
}

// Options come from the command line, or else from the environment; both are checked here, where
// the user can still see the error.
Result<Options> check_options(const RunRequest& request) {
  for (const auto& given : request.options) {
    const std::string& variable = given.first;
    const auto alone = read_options(
        [&](const char* name) { return variable == name ? given.second.c_str() : nullptr; });
    if (alone.ok()) continue;
    const std::string cause = alone.status().message().substr(variable.size());  // ": ..."
    return Status::error(flag_of(variable) + cause);
  }
  return read_options([&](const char* name) -> const char* {
    const auto given = request.options.find(name);
    return given != request.options.end() ? given->second.c_str() : std::getenv(name);
  });
}

Status check_gpus(const Options& options, int gpu_count, const std::string& server) {
  for (const int gpu : options.relays.gpus)
    if (gpu >= gpu_count)
      return Status::error(
          fmt::format("the list of relays names GPU {}, but {} has {} GPU{}", gpu, server,
                      gpu_count, gpu_count == 1 ? "" : "s"),
          gpu_count > 1 ? fmt::format("Write numbers from 0 to {}", gpu_count - 1) : "");
  return {};
}

// Said here, before the program says other things.
Status check_files(const Options& options) {
  if (!options.costs.empty() && options.costs != "none")
    BRAID_TRY(multipath::read_cost_file(options.costs).status());
  const auto path_of = [](const std::string& file) {
    return std::string(preload::ProcessPath(file, getpid()).c_str());
  };
  if (!options.stats_file.empty())
    BRAID_TRY(check_replaceable(path_of(options.stats_file),
                                "Leave --stats-file out: statistics then go to stderr"));
  if (options.log.empty() || options.log == "stderr") return {};
  return check_writable(path_of(options.log));
}

// The program may be another product's whose names begin alike.
void warn_of_unknown_variables() {
  for (const std::string& name : unknown_variables())
    fmt::print(stderr, "braid: there is no option {}. See docs/options.md\n", name);
}

Status check_real_server(const Options& options) {
  // Starting the driver takes a while, so only a list of GPUs is worth it.
  if (options.relays.kind != RelayChoice::Kind::kList) return {};
  BRAID_LET(count, ask_in_child([]() -> Result<std::string> {
              const char* const lendable = std::getenv(lending::kLendVariable);
              BRAID_LET(server, open_lent_server(lendable != nullptr ? lendable : "", ""));
              int gpus = 0;
              server.driver.cuDeviceGetCount(&gpus);
              return std::to_string(gpus);
            }));
  return check_gpus(options, std::stoi(count), "this machine");
}

void prepend(const char* variable, const std::string& path) {
  const char* before = std::getenv(variable);
  const std::string rest = before != nullptr && *before != '\0' ? ":" + std::string(before) : "";
  setenv(variable, (path + rest).c_str(), 1);
}

Status use_emulated_server(const std::string& name, const Options& options) {
  BRAID_LET(profile, find_profile(name));
  BRAID_LET(server, topology::load_profile(profile));
  const int gpu_count = static_cast<int>(server.gpus.size());
  BRAID_TRY(check_gpus(options, gpu_count, "server " + server.name));
  prepend("LD_LIBRARY_PATH", emulator_folder());
  setenv("BRAID_SERVER", profile.c_str(), 1);
  return {};
}

Status lend_gpus(const RunRequest& request) {
  if (request.lend.empty()) return {};
  BRAID_LET(gpus, ask_in_child([&] { return lendable_gpus(request.lend, request.server); }));
  setenv(lending::kLendVariable, gpus.c_str(), 1);
  return {};
}

// What a machine without GPUs, or with half of braid, does not have. The driver is opened in a
// child: cuda-gdb fails when a process that has loaded it becomes another program.
Status check_installation(const RunRequest& request) {
  if (!request.server.empty()) BRAID_TRY(find_emulated_driver().status());
  if (!request.is_native && access(preload_library().c_str(), R_OK) != 0)
    return Status::error("there is no preload library at " + preload_library().string(),
                         kReinstall);
  if (!request.server.empty()) return {};
  return ask_in_child([]() -> Result<std::string> {
           BRAID_TRY(cuda::open_driver().status());
           return std::string();
         })
      .status();
}

Status use_preload_library() {
  const fs::path library = preload_library();
  if (library.string().find_first_of(" :") != std::string::npos)
    return Status::error("the loader cannot preload '" + library.string() + "'",
                         "Move braid to a folder without spaces and colons in its path");
  prepend("LD_PRELOAD", library);
  return {};
}

int fail_to_start(const std::string& program, int error) {
  fail(cannot_start(program, error));
  return error == ENOENT || error == ENOTDIR ? kNotFound : kCannotExecute;
}

int execute(const std::vector<std::string>& program) {
  std::vector<char*> words;
  for (const std::string& word : program) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  execvp(words[0], words.data());
  return fail_to_start(program[0], errno);
}

int execute_natively(const std::vector<std::string>& program) {
  take_out_preload_library();
  return execute(program);
}

// What the user has written: wrong on every machine.
Status check_words(const std::vector<std::string>& stray, const std::vector<std::string>& program) {
  if (!stray.empty() && stray[0].starts_with("-"))
    return Status::error("'" + stray[0] + "' is not an option of braid run",
                         "Write the program and its options after --; see braid run --help");
  const bool has_program = !program.empty() && !program[0].empty();
  if (!stray.empty() && has_program)
    return Status::error("'" + stray[0] + "' stands before --",
                         "Leave it out, or write it behind --, where the program stands");
  return has_program ? Status() : no_program("run", stray);
}

// Asked when something has failed: starting the driver takes a while.
bool has_gpus(const RunRequest& request) {
  return !request.server.empty() || ask_in_child([]() -> Result<std::string> {
                                      BRAID_TRY(open_server("").status());
                                      return std::string();
                                    }).ok();
}

// What the options say of the server, and the environment that goes with it.
Status prepare_server(const RunRequest& request, const Options& options) {
  // Before what may name GPUs that are lent.
  if (!request.is_native) BRAID_TRY(lend_gpus(request));
  BRAID_TRY(request.server.empty() ? check_real_server(options)
                                   : use_emulated_server(request.server, options));
  return request.is_native ? Status() : use_preload_library();
}

void warn_of_no_preload(const std::string& name, const fs::path& file) {
  const char* const why = is_static(file)      ? "is statically linked"
                          : gains_rights(file) ? "is setuid or setgid, or has capabilities"
                                               : nullptr;
  if (why != nullptr)
    fmt::print(stderr,
               "braid: '{}' {}, so that nothing can be preloaded into it: its copies stay native\n",
               name, why);
}

int fail_run(const Status& status) {
  fail(status);
  return kRunFailed;
}

// Returns only when the program could not be started.
int run(const RunRequest& request, const std::vector<std::string>& stray,
        const std::vector<std::string>& program) {
  Status status = check_words(stray, program);
  if (!status.ok()) return fail_run(status);
  // Looked at first, since all else would be done for nothing.
  const ProgramFile file = find_program(program[0]);
  if (file.error != 0) return fail_to_start(program[0], file.error);
  const auto options = check_options(request);
  if (!options.ok()) return fail_run(options.status());
  warn_of_unknown_variables();
  status = check_installation(request);
  bool is_machine_lacking = !status.ok();  // not the user's mistake
  if (status.ok()) status = check_files(options.value());
  if (status.ok()) {
    status = prepare_server(request, options.value());
    is_machine_lacking = !status.ok() && request.is_best_effort && !has_gpus(request);
  }
  if (is_machine_lacking && request.is_best_effort) {
    fmt::print(stderr, "braid: {}. The program runs without braid (--best-effort)\n",
               status.message());
    return execute_natively(program);
  }
  if (!status.ok()) return fail_run(status);
  if (request.is_native) return execute_natively(program);
  warn_of_no_preload(program[0], file.path);
  for (const auto& [variable, text] : request.options) setenv(variable.c_str(), text.c_str(), 1);
  setenv(preload::kStartedVariable, std::to_string(getpid()).c_str(), 1);
  return execute(program);
}

}  // namespace

void add_braid_options(CLI::App& command, std::map<std::string, std::string>& given) {
  for (const OptionRow& row : option_table())
    command
        .add_option_function<std::string>(
            flag_of(row.name),
            [&given, variable = std::string(row.name)](const std::string& text) {
              given[variable] = text;
            },
            fmt::format("{}; default: {}", row.meaning, row.default_text))
        ->type_name(row.values);
}

void add_lend_option(CLI::App& command, std::string& lend) {
  command
      .add_option("--lend", lend,
                  "GPUs that may help although CUDA_VISIBLE_DEVICES hides them from the program: "
                  "all, or a list of numbers and UUIDs")
      ->type_name("all|LIST");
}

void add_run_command(CLI::App& app, const std::vector<std::string>& program, int& exit_code) {
  CLI::App* command = app.add_subcommand(
      "run", "run a program with its copies over every PCIe link: braid run -- python3 serve.py");
  auto request = std::make_shared<RunRequest>();
  show_program_in_usage(*command);
  add_server_option(*command, request->server);
  add_lend_option(*command, request->lend);
  command->add_flag("--best-effort", request->is_best_effort,
                    "start the program all the same where braid cannot help: no GPU, no driver");
  command->add_flag("--native", request->is_native,
                    "start the program without braid: what `braid compare` compares with");
  add_braid_options(*command, request->options);
  command->allow_extras();
  command->callback(
      [=, &program, &exit_code] { exit_code = run(*request, command->remaining(), program); });
}

}  // namespace braid::tools
