// `braid doctor`: can braid help on this server? One line a check: ok or FAIL, and the remedy.
//
// The last check copies for real: the command starts itself under `braid run` as a client that
// knows nothing of braid (the hidden command `probe`), and reads the statistics that come back.
#include <dlfcn.h>
#include <fmt/core.h>
#include <fmt/ranges.h>
#include <sys/wait.h>

#include <algorithm>
#include <bit>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <vector>

#include "base/try.h"
#include "cuda/driver.h"
#include "cuda/kernels/image.h"
#include "lending/cudart_hooks.h"
#include "lending/visible_devices.h"
#include "multipath/cost_file.h"
#include "multipath/relay_topology.h"
#include "preload/hooks.h"
#include "tools/commands.h"
#include "tools/in_child.h"
#include "tools/in_force.h"
#include "tools/lend.h"
#include "tools/locate.h"
#include "tools/open_server.h"

namespace braid::tools {
namespace {

constexpr const char* kNextLine = "\n              ";  // under the text of a finding

// The client's copies are such that braid should help, and reach a threshold of the user's.
constexpr uint64_t kProbeBytes = 64 << 20;
constexpr uint64_t kMostProbeBytes = 1 << 30;

struct DoctorRequest {
  std::string server;  // empty: this machine
  std::string lend;    // empty: no GPU is lent
  bool lists_hooks = false;
  std::map<std::string, std::string> options;  // environment variable -> text
};

struct Finding {
  std::string text;    // what was found
  std::string remedy;  // of a failure
  bool ok = true;
};

Finding good(std::string text) { return {std::move(text), "", true}; }
Finding bad(std::string text, std::string remedy) {
  return {std::move(text), std::move(remedy), false};
}

void print(const char* what, const Finding& finding) {
  fmt::print("{:<5}{:<9}{}{}\n", finding.ok ? "ok" : "FAIL", what, finding.text,
             finding.remedy.empty() ? "" : ". " + finding.remedy);
}

// The GPUs as the driver has them under braid: the program's own, then those that are lent.
struct Gpus {
  int own = 0;
  int all = 0;
  int of_server = 0;  // with those that CUDA_VISIBLE_DEVICES hides and nobody lends; 0: unknown
  bool are_all_lendable = false;  // --lend all
};

Finding check_driver(const cuda::Driver& driver, Gpus& gpus) {
  int version = 0;
  char name[128] = "";
  Status status = driver.check(driver.cuDriverGetVersion(&version), "its version");
  if (status.ok()) status = driver.check(driver.cuDeviceGetCount(&gpus.all), "its GPUs");
  if (status.ok())
    status = driver.check(driver.cuDeviceGetName(name, sizeof name, 0), "the name of GPU 0");
  if (!status.ok())
    return bad("the CUDA driver does not start: " + status.message(),
               "Try nvidia-smi; without GPUs, braid doctor --server h20x8");
  gpus.own = std::min(gpus.own, gpus.all);
  return good(fmt::format(
      "CUDA {}.{}, {} GPU{}{}: {}", version / 1000, version % 1000 / 10, gpus.own,
      gpus.own == 1 ? "" : "s",
      gpus.all > gpus.own ? fmt::format(" and {} lent", gpus.all - gpus.own) : "", name));
}

// Why no GPU of the program's has a relay. `reserved`: GPUs that do not relay, and why.
Finding no_peers(const std::string& summary, const std::string& reserved, Gpus gpus) {
  const int hidden = gpus.of_server - gpus.all;
  if (hidden > 0 && gpus.are_all_lendable)
    return bad(summary,
               fmt::format("No GPU is lent for {}='{}': name GPUs that are there, by numbers "
                           "or by UUIDs, each once",
                           lending::kVisibleVariable, std::getenv(lending::kVisibleVariable)));
  if (hidden > 0)
    return bad(summary, fmt::format("{} hides {} GPU{}: lend them to braid with --lend all",
                                    lending::kVisibleVariable, hidden, hidden == 1 ? "" : "s"));
  if (!reserved.empty()) return bad(summary, reserved);
  return bad(summary,
             "braid needs two GPUs that reach each other with native atomics (NVLink); without "
             "them it stages pageable memory only");
}

Finding check_peers(const cuda::Driver& driver, const Options& options, Gpus gpus) {
  std::vector<CUdevice> devices(gpus.all);
  for (int gpu = 0; gpu < gpus.all; ++gpu) driver.cuDeviceGet(&devices[gpu], gpu);
  std::string text;
  int helped = 0;
  for (int target = 0; target < gpus.own; ++target) {
    std::string relays;
    for (int relay = 0; relay < gpus.all; ++relay)
      if (multipath::can_relay(driver, devices[relay], devices[target]))
        relays += fmt::format("{}{}", relays.empty() ? "" : ",", relay);
    helped += relays.empty() ? 0 : 1;
    text += fmt::format("{}GPU {}: {}", kNextLine, target,
                        relays.empty() ? "no relay" : "relays " + relays);
  }
  const auto relays = multipath::RelayTopology::find(driver, options);
  const std::string reserved = relays.ok() ? relays.value().reserved() : "";
  if (!reserved.empty()) text += kNextLine + reserved;
  const std::string summary = fmt::format("{} of {} GPUs have relays", helped, gpus.own);
  if (helped > 0) return good(summary + text);
  return no_peers(summary, reserved, gpus);
}

// That help one GPU, of those that the options allow.
int most_relays(const cuda::Driver& driver, const Options& options, Gpus gpus) {
  const auto relays = multipath::RelayTopology::find(driver, options);
  int most = 0;
  for (int target = 0; relays.ok() && target < gpus.own; ++target)
    most = std::max(most, std::popcount(relays.value().of(target)));
  return most;
}

// The library as the loader will see it; null, with the reason, when it cannot be loaded.
Finding check_library(void*& library) {
  library = dlopen(preload_library().c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library != nullptr) return good(preload_library());
  return bad(dlerror(), kReinstall);
}

Finding check_hooks(void* library) {
  int missing = 0;
  for (const preload::Hook& hook : preload::hooks())
    missing += dlsym(library, hook.symbol) == nullptr ? 1 : 0;
  for (const char* const symbol : lending::cudart_hooks())
    missing += dlsym(library, symbol) == nullptr ? 1 : 0;
  if (missing != 0)
    return bad(fmt::format("{} entry points are missing from the library", missing),
               std::string("The library and the command are of different builds. ") + kReinstall);
  return good(fmt::format("{} driver and {} runtime entry points, dlsym and _exit",
                          preload::hooks().size(), lending::cudart_hooks().size()));
}

void list_hooks() {
  for (const preload::Hook& hook : preload::hooks()) fmt::print("       {}\n", hook.symbol);
  for (const char* const symbol : lending::cudart_hooks()) fmt::print("       {}\n", symbol);
}

struct ChildResult {
  int exit_code = -1;
  std::string error_output;
};

std::string age_text(int64_t age_s) {
  const int64_t hours = age_s / 3600;
  if (hours < 1) return "less than an hour ago";
  return hours < 48 ? fmt::format("{} hours ago", hours) : fmt::format("{} days ago", hours / 24);
}

// Whether `braid tune` has been here. The defaults are sensible, so that is no failure.
Finding check_costs(const multipath::LoadedCosts& costs) {
  if (!costs.problem.ok()) return bad(costs.problem.message(), "");
  if (costs.path.empty())
    return good("defaults, measured on 4 H200; braid tune measures this server");
  return good(
      fmt::format("measured {}: {}", age_text(time(nullptr) - costs.measured_at_s), costs.path));
}

// Runs this command with `arguments` and collects its stderr. What it reports comes there.
ChildResult run_self(const std::vector<std::string>& arguments) {
  const std::string command =
      "BRAID_STATS_FILE= BRAID_LOG= " + shell_command(arguments) + " 2>&1 >/dev/null";
  ChildResult result;
  const WaitableChildren waitable;
  FILE* const errors = popen(command.c_str(), "r");
  if (errors == nullptr) return result;
  char buffer[4096];
  for (size_t got; (got = fread(buffer, 1, sizeof buffer, errors)) > 0;)
    result.error_output.append(buffer, got);
  if (const int status = pclose(errors); WIFEXITED(status)) result.exit_code = WEXITSTATUS(status);
  return result;
}

std::string last_line(const std::string& text) {
  const size_t end = text.find_last_not_of('\n');
  if (end == std::string::npos) return "";
  const size_t start = text.find_last_of('\n', end);
  return text.substr(start == std::string::npos ? 0 : start + 1, end + 1 - (start + 1));
}

nlohmann::json statistics_in(const std::string& error_output) {
  const size_t start = error_output.rfind(R"({"braid":)");
  if (start == std::string::npos) return nullptr;
  const auto line = error_output.substr(start, error_output.find('\n', start) - start);
  return nlohmann::json::parse(line, nullptr, false).value("braid", nlohmann::json());
}

// Copies of every GPU of the program's.
Finding judge_copies(const nlohmann::json& statistics, Gpus gpus, const char* when) {
  int accelerated = 0;
  std::set<std::string> reasons;
  for (const auto& [entry_point, verdicts] : statistics.at("entry_points").items())
    for (const auto& [verdict, count] : verdicts.items())
      if (verdict == "accelerated")
        accelerated += count.at("calls").get<int>();
      else
        reasons.insert(verdict);
  const std::string why = fmt::format("{}", fmt::join(reasons, " "));
  std::map<int, std::set<int>> links;  // by target
  for (const auto& path : statistics.at("paths"))
    links[path.at("target").get<int>()].insert(path.at("via").get<int>());
  size_t most = 0;
  std::vector<int> native;
  for (int gpu = 0; gpu < gpus.own; ++gpu) {
    most = std::max(most, links[gpu].size());
    if (links[gpu].empty()) native.push_back(gpu);
  }
  if (accelerated == 0 || accelerated < kProbeCopies * (gpus.own - static_cast<int>(native.size())))
    return bad("the copies are right but stayed native: " + why,
               "docs/statistics.md says what each reason means");
  return good(fmt::format("{} copies verified byte by byte, each over the links of {} GPUs{}{}",
                          accelerated, most, when,
                          native.empty() ? ""
                                         : fmt::format("; those of GPU {} stay native: {}",
                                                       fmt::join(native, ","), why)));
}

// Runs `program` as the user's would be run.
ChildResult run_program(const DoctorRequest& request, const std::vector<std::string>& options,
                        const std::vector<std::string>& program) {
  std::vector<std::string> words{"run"};
  if (!request.server.empty()) words.insert(words.end(), {"--server", request.server});
  if (!request.lend.empty()) words.insert(words.end(), {"--lend", request.lend});
  words.insert(words.end(), options.begin(), options.end());
  words.push_back("--");
  words.insert(words.end(), program.begin(), program.end());
  return run_self(words);
}

// The client is started as the user's program would be; only that it waits for the relays.
Finding check_copy(const DoctorRequest& request, const Options& options, Gpus gpus) {
  const uint64_t size_bytes = std::clamp(options.threshold_bytes, kProbeBytes, kMostProbeBytes);
  const ChildResult child =
      run_program(request, {"--stats", "json", "--opening", "wait"},
                  {install_root() / "bin" / "braid", "probe", std::to_string(size_bytes)});
  if (child.exit_code != 0)
    return bad(fmt::format("a copy failed (exit code {}): {}", child.exit_code,
                           last_line(child.error_output)),
               "Run it alone: braid run -- braid probe");
  const nlohmann::json statistics = statistics_in(child.error_output);
  if (!statistics.is_object())
    return bad("the copies are right but braid saw none of them",
               "Is something else interposing dlsym? Look at LD_PRELOAD");
  return judge_copies(statistics, gpus, options.waits_for_relays ? "" : ", once relays are open");
}

// Where CUDA_VISIBLE_DEVICES may hide some; elsewhere, and where it cannot be told, 0.
int count_gpus_of_server(const std::string& server) {
  if (std::getenv(lending::kVisibleVariable) == nullptr) return 0;
  const auto all = ask_in_child([&] { return lendable_gpus("all", server); });
  return all.ok() ? static_cast<int>(lending::split_list(all.value()).size()) : 0;
}

// The driver that a program finds under braid, and how many of its GPUs are the program's. A driver
// that has started shows no other GPUs, so a child asks what is lent, and what is hidden.
Result<cuda::Driver> open_driver(const DoctorRequest& request, Gpus& gpus) {
  gpus.of_server = count_gpus_of_server(request.server);
  std::string lendable;
  if (!request.lend.empty()) {
    BRAID_LET(asked, ask_in_child([&] { return lendable_gpus(request.lend, request.server); }));
    lendable = asked;
  }
  BRAID_LET(server, open_lent_server(lendable, request.server));
  gpus.own = server.own_gpus;
  gpus.are_all_lendable = request.lend == "all";
  return server.driver;
}

int doctor(const DoctorRequest& request) {
  const std::string& server = request.server;
  // A name that is no server's is the user's slip, not a finding.
  if (!server.empty() && !find_profile(server).ok()) return fail(find_profile(server).status());
  // As `braid run` does for its program.
  for (const auto& [variable, text] : request.options) setenv(variable.c_str(), text.c_str(), 1);
  bool all_ok = true;
  const auto report = [&](const char* what, const Finding& finding) {
    print(what, finding);
    all_ok = all_ok && finding.ok;
    return finding.ok;
  };
  Gpus gpus;
  const auto driver = open_driver(request, gpus);
  const bool has_driver = report("driver", driver.ok() ? check_driver(driver.value(), gpus)
                                                       : bad(driver.status().message(), ""));
  if (has_driver && server.empty() && !cuda::pull_kernels_are_built())
    report("kernels", bad("this build of braid has none for GPUs: nvcc was not there",
                          "Build it where nvcc is: make build"));
  const auto options = read_options();
  const bool has_peers =
      has_driver && report("peers", check_peers(driver.value(),
                                                options.ok() ? options.value() : Options{}, gpus));
  if (!options.ok()) report("options", bad(options.status().message(), "docs/options.md"));
  if (has_peers && options.ok()) {
    const auto costs = multipath::load_costs(driver.value(), options.value());
    report("costs", check_costs(costs));
    const InForce in_force_here = in_force(options.value(), costs.costs, !costs.path.empty(),
                                           1 + most_relays(driver.value(), options.value(), gpus));
    report("mover", good(in_force_here.mover));
    report("sizes", good(in_force_here.sizes));
    report("pageable", good(in_force_here.pageable));
    report("options", good(in_force_here.options));
  }
  void* library = nullptr;
  const bool has_library = report("library", check_library(library));
  if (has_library && report("hooks", check_hooks(library)) && request.lists_hooks) list_hooks();
  if (has_peers && has_library && options.ok())
    report("copy", check_copy(request, options.value(), gpus));
  return all_ok ? 0 : 1;
}

}  // namespace

void add_doctor_command(CLI::App& app, int& exit_code) {
  CLI::App* command =
      app.add_subcommand("doctor", "check that braid can help here; each failure says its remedy");
  auto request = std::make_shared<DoctorRequest>();
  add_server_option(*command, request->server);
  add_lend_option(*command, request->lend);
  command->add_flag("--verbose", request->lists_hooks, "list the entry points that are hooked");
  add_braid_options(*command, request->options);
  command->callback([=, &exit_code] { exit_code = doctor(*request); });

  CLI::App* client = app.add_subcommand("probe", "copy and verify, as doctor's client");
  client->group("");  // not in --help
  auto size_bytes = std::make_shared<size_t>(kProbeBytes);
  client->add_option("size_bytes", *size_bytes);
  client->callback([=, &exit_code] { exit_code = probe(*size_bytes); });
}

}  // namespace braid::tools
