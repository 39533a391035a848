// `braid serve`, `braid segments`, `braid rails`: what transfer engines of this host and others
// have.
#include <fmt/core.h>
#include <signal.h>
#include <sys/signalfd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>

#include "base/clock.h"
#include "fabric/library/trust.h"
#include "tools/commands.h"
#include "tools/table.h"
#include "tools/tebench.h"
#include "tools/transfer_options.h"
#include "topology/machine.h"
#include "transfer/directory/resolve.h"
#include "transfer/directory/socket.h"
#include "transfer/directory/store.h"
#include "transfer/library/open_rails.h"

namespace braid::tools {
namespace {

using std::chrono::seconds;

constexpr seconds kOpenLimit{10};

std::string rights_name(transfer::Rights rights) {
  if (rights == (transfer::kMayRead | transfer::kMayWrite)) return "read, write";
  if (rights == transfer::kMayRead) return "read";
  return rights == transfer::kMayWrite ? "write" : "none";
}

// ---- serve ----

struct ServeOptions {
  uint64_t memory_bytes = 1 << 30;
  bool is_read_only = false;
  int seconds = 0;
  std::vector<std::string> readable;  ///< NAME=FOLDER
  std::vector<std::string> writable;
};

Status export_folders(Transfer& engine, const std::vector<std::string>& all,
                      Transfer::Rights rights) {
  for (const std::string& each : all) {
    const size_t equals = each.find('=');
    if (equals == std::string::npos)
      return Status::error("'" + each + "' names no folder", "Write NAME=FOLDER");
    const Status done =
        engine.export_folder(each.substr(0, equals), each.substr(equals + 1), rights);
    if (!done.ok()) return done;
  }
  return {};
}

/// SIGINT and SIGTERM as a descriptor's readiness, or the time.
void wait_for_the_end(int limit_s) {
  sigset_t ends;
  sigemptyset(&ends);
  sigaddset(&ends, SIGINT);
  sigaddset(&ends, SIGTERM);
  const timespec limit{limit_s, 0};
  if (limit_s > 0)
    (void)sigtimedwait(&ends, nullptr, &limit);
  else
    (void)sigwaitinfo(&ends, nullptr);
}

int serve(const Transfer::Options& options, const ServeOptions& what) {
  sigset_t ends;
  sigemptyset(&ends);
  sigaddset(&ends, SIGINT);
  sigaddset(&ends, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &ends, nullptr);  // before the engine's thread is there
  auto opened = Transfer::open(options);
  if (!opened.ok()) return fail(opened.status());
  Transfer& engine = opened.value();
  const auto memory = engine.allocate_memory(what.memory_bytes, {true, !what.is_read_only});
  if (!memory.ok()) return fail(memory.status());
  for (const Status& done : {export_folders(engine, what.readable, {true, false}),
                             export_folders(engine, what.writable, {true, true})})
    if (!done.ok()) return fail(done);
  const auto name = engine.name();
  if (!name.ok()) return fail(name.status());
  fmt::print("{}\n", name.value());
  fmt::print("memory of {} bytes at {:#x}, peers may {}\n", what.memory_bytes,
             reinterpret_cast<uint64_t>(memory.value().memory),
             what.is_read_only ? "read" : "read and write");
  std::fflush(stdout);
  wait_for_the_end(what.seconds);
  const auto report = engine.report(Transfer::Form::kText);
  if (report.ok()) fmt::print("{}", report.value());
  return 0;
}

// ---- segments ----

Result<fabric::Secret> secret_of(const Transfer::Options& options) {
  fabric::ServiceOptions wanted;
  wanted.secret_file = options.secret_file;
  return fabric::secret_for(wanted, {});
}

std::string store_of(const Transfer::Options& options) {
  const char* variable = std::getenv(transfer::kStoreVariable);
  return options.store.empty() && variable != nullptr ? variable : options.store;
}

int list_names() {
  const auto folder = transfer::socket_folder();
  if (!folder.ok()) return fail(folder.status());
  Table table({"NAME", "STATE"});
  size_t count = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder.value())) {
    const bool is_live = transfer::connect_to_path(entry.path().string()).ok();
    table.add(
        {entry.path().filename().string(), is_live ? "listens" : "left by a process that ended"});
    ++count;
  }
  if (count == 0)
    fmt::print("no engine of this user on this host has a name ({})\n", folder.value());
  else
    fmt::print("{}", table.print({}));
  return 0;
}

std::string where(const transfer::Description& owner, const transfer::RangeDescription& range) {
  if (range.place >= owner.places.size()) return "";
  const transfer::Place& place = owner.places[range.place].place;
  if (place.is_gpu) return "GPU " + std::to_string(place.gpu);
  return place.numa_node < 0 ? "host" : "node " + std::to_string(place.numa_node);
}

int segments(const Transfer::Options& options, const std::string& text) {
  if (text.empty()) return list_names();
  const auto name = transfer::parse_name(text);
  if (!name.ok()) return fail(name.status());
  const auto secret = secret_of(options);
  if (!secret.ok()) return fail(secret.status());
  const uint64_t end_ns = monotonic_ns() + 10'000'000'000;
  const auto description =
      transfer::resolve(name.value(), store_of(options), secret.value(), end_ns);
  if (!description.ok()) return fail(description.status());
  const transfer::Description& owner = description.value();
  fmt::print("incarnation {}, process {}, protocol {}\n", transfer::to_hex(owner.incarnation),
             owner.origin.process, owner.version);
  Table rails({"RAIL", "ADDRESS", "GB/S"});
  for (const auto& rail : owner.rails)
    rails.add({rail.provider, rail.host_address, fmt::format("{:.2f}", rail.gbps)});
  fmt::print("{}", rails.print({2}));
  Table ranges({"ADDRESS", "BYTES", "MEMORY", "PEERS MAY"});
  for (const auto& range : owner.ranges)
    ranges.add({fmt::format("{:#x}", range.address), std::to_string(range.size_bytes),
                where(owner, range), rights_name(range.rights)});
  fmt::print("{}", ranges.print({1}));
  if (owner.range_count > owner.ranges.size())
    fmt::print("  and {} more\n", owner.range_count - owner.ranges.size());
  Table exports({"EXPORTED", "PEERS MAY"});
  for (const auto& each : owner.exports) exports.add({each.name, rights_name(each.rights)});
  if (!owner.exports.empty()) fmt::print("{}", exports.print({}));
  return 0;
}

// ---- rails ----

int own_rails(const Transfer::Options& options) {
  transfer::OpenOptions wanted;
  wanted.addresses = options.addresses;
  wanted.nics = options.nics;
  wanted.providers = options.providers;
  wanted.secret_file = options.secret_file;
  wanted.allows_unauthenticated = options.allow_unauthenticated;
  const std::vector<topology::Nic> nics = topology::host_nics();
  transfer::Places places{topology::Machine()};
  transfer::RailHost host{nics, places};
  const auto rails = transfer::open_rails(wanted, host);
  if (!rails.ok()) return fail(rails.status());
  Table table({"RAIL", "ADDRESS", "GB/S", "NUMA NODE"});
  for (const auto& rail : rails.value().descriptions)
    table.add({rail.provider, rail.host_address, fmt::format("{:.2f}", rail.gbps),
               rail.place.numa_node < 0 ? "" : std::to_string(rail.place.numa_node)});
  fmt::print("{}", table.print({2, 3}));
  return 0;
}

int rails(const Transfer::Options& options, const std::string& name, uint64_t size_bytes) {
  if (name.empty()) return own_rails(options);
  auto opened = Transfer::open(options);
  if (!opened.ok()) return fail(opened.status());
  const auto segment = opened.value().open_segment(name, kOpenLimit);
  if (!segment.ok()) return fail(segment.status());
  const auto text = opened.value().explain(segment.value(), size_bytes, Transfer::Urgency::kBulk,
                                           Transfer::Form::kText);
  if (!text.ok()) return fail(text.status());
  fmt::print("{}", text.value());
  return 0;
}

}  // namespace

std::shared_ptr<Transfer::Options> add_transfer_options(CLI::App& command) {
  auto options = std::make_shared<Transfer::Options>();
  command.add_option("--name", options->name, "for others of this host and user");
  command.add_option("--listen", options->listen, "where others ask by name")
      ->type_name("HOST:PORT");
  command.add_option("--address", options->addresses, "of a network interface: a rail at each")
      ->delimiter(',');
  command.add_option("--nics", options->nics, "eth0,eth1 or ^docker0: a rail at each");
  command.add_option("--provider", options->providers, "of libfabric: shm, tcp;ofi_rxm, ...")
      ->delimiter(',');
  command.add_option("--store", options->store, "where the names of a cluster are kept")
      ->type_name("redis://HOST:PORT|etcd://HOST:PORT");
  command.add_option("--secret-file", options->secret_file, "that all engines share")
      ->type_name("FILE");
  command.add_flag("--allow-unauthenticated", options->allow_unauthenticated,
                   "let other hosts reach rails without a secret");
  return options;
}

void add_transfer_commands(CLI::App& app, int& exit_code) {
  CLI::App* serve_command =
      app.add_subcommand("serve", "lets others read and write memory of this host");
  auto options = add_transfer_options(*serve_command);
  auto what = std::make_shared<ServeOptions>();
  serve_command->add_option("--memory", what->memory_bytes, "how much")
      ->transform(CLI::AsSizeValue(false));
  serve_command->add_flag("--read-only", what->is_read_only, "peers may read, and not write");
  serve_command->add_option("--export", what->readable, "a folder whose files peers may read")
      ->type_name("NAME=FOLDER");
  serve_command
      ->add_option("--export-writable", what->writable,
                   "one whose files they may write and make too")
      ->type_name("NAME=FOLDER");
  serve_command->add_option("--seconds", what->seconds, "how long; 0: until it is interrupted");
  serve_command->callback([=, &exit_code] { exit_code = serve(*options, *what); });

  CLI::App* segments_command = app.add_subcommand(
      "segments", "what an engine has registered; without a name, those that have a name here");
  auto of_segments = add_transfer_options(*segments_command);
  auto name = std::make_shared<std::string>();
  segments_command->add_option("SEGMENT", *name, "braid://host:port, or a bare name");
  segments_command->callback([=, &exit_code] { exit_code = segments(*of_segments, *name); });

  CLI::App* rails_command = app.add_subcommand(
      "rails", "the rails of an engine here; with a segment, the ways to it as they are now");
  auto of_rails = add_transfer_options(*rails_command);
  auto size_bytes = std::make_shared<uint64_t>(1 << 20);
  rails_command->add_option("SEGMENT", *name, "braid://host:port, or a bare name");
  rails_command->add_option("--size", *size_bytes, "of the request that is predicted")
      ->transform(CLI::AsSizeValue(false));
  rails_command->callback([=, &exit_code] { exit_code = rails(*of_rails, *name, *size_bytes); });

  add_tebench_command(app, exit_code);
}

}  // namespace braid::tools
