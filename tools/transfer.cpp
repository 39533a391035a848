// `braid serve`, `braid segments`, `braid rails`: what transfer engines of this host and others
// have.
#include <fmt/core.h>

#include <chrono>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>

#include "base/clock.h"
#include "base/try.h"
#include "fabric/library/trust.h"
#include "tools/commands.h"
#include "tools/numbers.h"
#include "tools/segment_names.h"
#include "tools/table.h"
#include "tools/tebench.h"
#include "tools/transfer_options.h"
#include "tools/transfer_target.h"
#include "tools/watch.h"
#include "topology/machine.h"
#include "transfer/directory/live_report.h"
#include "transfer/directory/resolve.h"
#include "transfer/directory/store.h"
#include "transfer/library/open_rails.h"
#include "transfer/shares.h"

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
  std::optional<int> gpu;  ///< whose memory it is; none: the host's
  int seconds = 0;
  std::vector<std::string> readable;  ///< NAME=FOLDER
  std::vector<std::string> writable;
};

Status with_remedy(const Status& wrong, const std::string& remedy) {
  if (wrong.ok()) return wrong;
  return Status::error(wrong.message(), remedy).with_cause(wrong.cause());
}

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

Status serve(const Transfer::Options& options, const ServeOptions& what) {
  if (what.memory_bytes == 0 && what.readable.empty() && what.writable.empty())
    return Status::error("nothing is to be served", "Name --memory, --export or --export-writable");
  hold_end_signals();  // before the engine's thread is there
  BRAID_TRY(load_driver_if(options.gpu_memory));
  std::optional<TransferMemory> memory;
  if (what.memory_bytes > 0) {
    BRAID_LET(opened, TransferMemory::open(what.memory_bytes, what.gpu));
    memory.emplace(std::move(opened));
  }
  BRAID_LET(engine, Transfer::open(options));
  if (memory)
    BRAID_TRY(with_remedy(memory->add_to(engine, {true, !what.is_read_only}),
                          what.gpu ? "" : "Name a --memory that this host has free"));
  BRAID_TRY(export_folders(engine, what.readable, {true, false}));
  BRAID_TRY(export_folders(engine, what.writable, {true, true}));
  BRAID_LET(name, engine.name());
  fmt::print("{}\n", name);
  if (memory)
    fmt::print("memory{} of {} bytes at {:#x}, peers may {}\n",
               what.gpu ? " of GPU " + std::to_string(*what.gpu) : "", what.memory_bytes,
               reinterpret_cast<uint64_t>(memory->address()),
               what.is_read_only ? "read" : "read and write");
  else
    fmt::print("no memory, files alone\n");
  std::fflush(stdout);
  BRAID_TRY(serve_until_the_end(engine, what.seconds));
  BRAID_LET(report, engine.report(Transfer::Form::kText));
  fmt::print("{}", report);
  return {};
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

std::string where(const transfer::Description& owner, const transfer::RangeDescription& range) {
  if (range.place >= owner.places.size()) return "";
  const transfer::Place& place = owner.places[range.place].place;
  if (place.is_gpu) return "GPU " + std::to_string(place.gpu);
  return place.numa_node < 0 ? "host" : "node " + std::to_string(place.numa_node);
}

View view_of(const transfer::Description& owner) {
  View view;
  view.text = fmt::format("incarnation {}, process {}, protocol {}\n",
                          transfer::to_hex(owner.incarnation), owner.origin.process, owner.version);
  view.json = {{"incarnation", transfer::to_hex(owner.incarnation)},
               {"process", owner.origin.process},
               {"protocol", owner.version},
               {"rails", nlohmann::ordered_json::array()},
               {"ranges", nlohmann::ordered_json::array()},
               {"range_count", owner.range_count},
               {"exports", nlohmann::ordered_json::array()}};
  Table rails({"RAIL", "ADDRESS", "GB/S"});
  for (const auto& rail : owner.rails) {
    rails.add({rail.provider, rail.host_address, fmt::format("{:.2f}", rail.gbps)});
    view.json["rails"].push_back(
        {{"rail", rail.provider}, {"address", rail.host_address}, {"gbps", rail.gbps}});
  }
  Table ranges({"ADDRESS", "BYTES", "MEMORY", "PEERS MAY"});
  for (const auto& range : owner.ranges) {
    ranges.add({fmt::format("{:#x}", range.address), std::to_string(range.size_bytes),
                where(owner, range), rights_name(range.rights)});
    view.json["ranges"].push_back({{"address", range.address},
                                   {"size_bytes", range.size_bytes},
                                   {"memory", where(owner, range)},
                                   {"peers_may", rights_name(range.rights)}});
  }
  view.text += rails.print({2}) + ranges.print({1});
  if (owner.range_count > owner.ranges.size())
    view.text += fmt::format("  and {} more\n", owner.range_count - owner.ranges.size());
  Table exports({"EXPORTED", "PEERS MAY"});
  for (const auto& each : owner.exports) {
    exports.add({each.name, rights_name(each.rights)});
    view.json["exports"].push_back(
        {{"exported", each.name}, {"peers_may", rights_name(each.rights)}});
  }
  if (!owner.exports.empty()) view.text += exports.print({});
  return view;
}

/// Why that is no name; "host:port" is one behind the scheme.
Status with_scheme(const std::string& text, const Status& why) {
  const std::string whole = "braid://" + text;
  if (text.find("://") != std::string::npos || !transfer::parse_name(whole).ok()) return why;
  return Status::error("'" + text + "' is no name", "Write " + whole);
}

/// What the engine of that name says, each time that it is asked.
template <typename Ask, typename ViewOf>
int show_engine(const Transfer::Options& options, const std::string& text, const ViewOptions& how,
                const Ask& ask, const ViewOf& view_of) {
  const auto name = transfer::parse_name(text);
  if (!name.ok()) return fail(with_scheme(text, name.status()));
  const auto secret = secret_of(options);
  if (!secret.ok()) return fail(secret.status());
  return show(how, [&]() -> Result<View> {
    const uint64_t end_ns = monotonic_ns() + 10'000'000'000;
    BRAID_LET(answer, ask(name.value(), store_of(options), secret.value(), end_ns));
    return view_of(answer);
  });
}

int segments(const Transfer::Options& options, const std::string& text, const ViewOptions& how) {
  if (!text.empty()) return show_engine(options, text, how, transfer::resolve, view_of);
  const std::string store = store_of(options);
  const auto secret = store.empty() ? Result<fabric::Secret>(fabric::Secret()) : secret_of(options);
  if (!secret.ok()) return fail(secret.status());
  return show(how, [&] { return view_names(store, secret.value()); });
}

// ---- rails ----

/// Who uses them now: engines of this user that are open on this host.
Result<View> view_rails(const std::vector<transfer::RailDescription>& rails) {
  const auto loads = transfer::HostShares::loads(transfer::HostShares::usual_name(), rails);
  View view;
  view.json = nlohmann::ordered_json::array();
  Table table({"RAIL", "ADDRESS", "GB/S", "NUMA NODE", "ENGINE OF", "MOVES GB/S", "MOVED GB"});
  for (size_t i = 0; i < rails.size(); ++i) {
    const transfer::RailDescription& rail = rails[i];
    std::vector<std::string> cells = {
        rail.provider, rail.host_address, fmt::format("{:.2f}", rail.gbps),
        rail.place.numa_node < 0 ? "" : std::to_string(rail.place.numa_node)};
    nlohmann::ordered_json json = {{"rail", rail.provider},
                                   {"address", rail.host_address},
                                   {"gbps", rail.gbps},
                                   {"numa_node", rail.place.numa_node},
                                   {"engines", nlohmann::ordered_json::array()}};
    if (loads.ok())
      for (const transfer::RailLoad& load : loads.value()) {
        if (load.rail != i) continue;
        cells.resize(4);
        cells.insert(cells.end(),
                     {std::to_string(load.process), fmt::format("{:.3f}", load.gbps),
                      fmt::format("{:.3f}", static_cast<double>(load.delivered_bytes) / 1e9)});
        table.add(std::exchange(cells, {"", "", "", ""}));
        json["engines"].push_back({{"process", load.process},
                                   {"gbps", load.gbps},
                                   {"delivered_bytes", load.delivered_bytes},
                                   {"is_active", load.is_active}});
      }
    if (json["engines"].empty()) {
      cells.resize(7);
      table.add(cells);
    }
    view.json.push_back(json);
  }
  view.text = table.print({2, 3, 4, 5, 6});
  return view;
}

int own_rails(const Transfer::Options& options, const ViewOptions& how) {
  if (const Status loaded = load_driver_if(options.gpu_memory); !loaded.ok()) return fail(loaded);
  transfer::OpenOptions wanted;
  wanted.addresses = options.addresses;
  wanted.nics = options.nics;
  wanted.listen = options.listen;
  wanted.providers = options.providers;
  wanted.secret_file = options.secret_file;
  wanted.allows_unauthenticated = options.allow_unauthenticated;
  wanted.has_gpu_memory = options.gpu_memory;
  const std::vector<topology::Nic> nics = topology::host_nics();
  const topology::Machine machine;
  transfer::Places places{machine};
  transfer::RailHost host{machine, nics, places};
  const auto rails = transfer::open_rails(wanted, host);
  if (!rails.ok()) return fail(rails.status());
  return show(how, [&] { return view_rails(rails.value().descriptions); });
}

std::string megabytes(const nlohmann::ordered_json& bytes) {
  return fmt::format("{:.1f}", bytes.get<double>() / 1e6);
}

/// What a running engine says of itself. Another version may leave out parts, or add some.
Result<View> view_of_report(const std::string& text) try {
  const auto said = nlohmann::ordered_json::parse(text);
  View view;
  view.json = said.at("braid_transfer");
  Table links({"RAIL", "PEER", "STATE", "SERVED MB", "READ MB", "WRITTEN MB", "FAILURES"});
  for (const auto& link : view.json["links"])
    links.add({link["rail"].get<std::string>(), link["peer"].get<std::string>().substr(0, 8),
               link["is_up"].get<bool>() ? "up" : "not up", megabytes(link["served_bytes"]),
               megabytes(link["read_bytes"]), megabytes(link["written_bytes"]),
               std::to_string(link["failures"].get<uint64_t>())});
  Table ways({"WAY", "PEER", "STATE", "GB/S", "BASE US", "MOVED MB", "REISSUED"});
  for (const auto& way : view.json["ways"])
    ways.add({way["way"].get<std::string>(), way["peer"].get<std::string>().substr(0, 8),
              way["state"].get<std::string>(),
              fmt::format("{:.3f}", way["rate_gbps"].get<double>()),
              fmt::format("{:.1f}", way["base_latency_us"].get<double>()),
              megabytes(way["delivered_bytes"]),
              std::to_string(way["reissued_slices"].get<uint64_t>())});
  view.text = view.json["links"].empty() && view.json["ways"].empty()
                  ? "no links yet: nobody has connected to it, nor has it to anybody\n"
                  : links.print({3, 4, 5, 6}) + ways.print({3, 4, 5, 6});
  for (const auto& each : view.json["refused"])
    view.text +=
        fmt::format("{} could not register {} bytes: {}\n", each["rail"].get<std::string>(),
                    each["size_bytes"].get<uint64_t>(), each["why"].get<std::string>());
  return view;
} catch (const nlohmann::json::exception& wrong) {
  return Status::error(fmt::format("the engine's report cannot be read: {}", wrong.what()),
                       "Use the same version of braid on both sides");
}

int rails_of(const Transfer::Options& options, const std::string& text, const ViewOptions& how) {
  return show_engine(options, text, how, transfer::ask_for_report, view_of_report);
}

/// The ways that a request from here would have.
int explain_rails(const Transfer::Options& options, const std::string& name, uint64_t size_bytes,
                  const ViewOptions& how) {
  if (const Status loaded = load_driver_if(options.gpu_memory); !loaded.ok()) return fail(loaded);
  auto opened = Transfer::open(options);
  if (!opened.ok()) return fail(opened.status());
  Transfer& engine = opened.value();
  const auto segment = engine.open_segment(name, kOpenLimit);
  if (!segment.ok()) return fail(segment.status());
  const auto explain = [&](Transfer::Form form) {
    return engine.explain(segment.value(), size_bytes, Transfer::Urgency::kBulk, form);
  };
  return show(how, [&]() -> Result<View> {
    View view;
    BRAID_LET(text, explain(Transfer::Form::kText));
    BRAID_LET(json, explain(Transfer::Form::kJson));
    view.text = text;
    view.json = nlohmann::ordered_json::parse(json, nullptr, false);
    return view;
  });
}

void add_serve_command(CLI::App& app, int& exit_code) {
  CLI::App* command = app.add_subcommand("serve", "lets others read and write memory of this host");
  auto options = add_transfer_options(*command);
  auto what = std::make_shared<ServeOptions>();
  as_size(command->add_option("--memory", what->memory_bytes, "how much; 0: files alone"));
  command->add_option("--gpu", what->gpu, "whose memory it is; without it, the host's")
      ->check(zero_or_more());
  command->add_flag("--read-only", what->is_read_only, "peers may read, and not write");
  command->add_option("--export", what->readable, "a folder whose files peers may read")
      ->type_name("NAME=FOLDER");
  command
      ->add_option("--export-writable", what->writable,
                   "one whose files they may write and make too")
      ->type_name("NAME=FOLDER");
  command->add_option("--seconds", what->seconds, "how long; 0: until it is interrupted")
      ->check(zero_or_more());
  command->callback([=, &exit_code] {
    options->gpu_memory = options->gpu_memory || what->gpu.has_value();
    const Status served = serve(*options, *what);
    exit_code = served.ok() ? 0 : fail(served);
  });
}

std::shared_ptr<std::string> add_segment_name(CLI::App& command) {
  auto name = std::make_shared<std::string>();
  command.add_option("SEGMENT", *name, "braid://host:port, or a bare name");
  return name;
}

void add_segments_command(CLI::App& app, int& exit_code) {
  CLI::App* command = app.add_subcommand(
      "segments",
      "what an engine has registered; without a name, those that have one here and in the store");
  auto options = add_transfer_options(*command);
  auto name = add_segment_name(*command);
  auto view = add_view_options(*command);
  command->callback([=, &exit_code] { exit_code = segments(*options, *name, *view); });
}

void add_rails_command(CLI::App& app, int& exit_code) {
  CLI::App* command = app.add_subcommand(
      "rails",
      "the rails of an engine here; with a name, what that engine's links and ways do now");
  auto options = add_transfer_options(*command);
  auto name = add_segment_name(*command);
  auto explains = std::make_shared<bool>(false);
  command->add_flag("--explain", *explains,
                    "opens an engine here: the ways from it, and the one a request would take");
  auto size_bytes = std::make_shared<uint64_t>(1 << 20);
  as_size(command->add_option("--size", *size_bytes, "of the request that is explained"))
      ->check(above_zero());
  auto view = add_view_options(*command);
  command->callback([=, &exit_code] {
    if (name->empty() && *explains)
      exit_code = fail(Status::error("--explain needs the name of an engine",
                                     "Write: braid rails --explain NAME; `braid segments` lists "
                                     "the names that can be opened here"));
    else
      exit_code = name->empty() ? own_rails(*options, *view)
                  : *explains   ? explain_rails(*options, *name, *size_bytes, *view)
                                : rails_of(*options, *name, *view);
  });
}

}  // namespace

void add_transfer_commands(CLI::App& app, int& exit_code) {
  add_serve_command(app, exit_code);
  add_segments_command(app, exit_code);
  add_rails_command(app, exit_code);
  add_tebench_command(app, exit_code);
}

}  // namespace braid::tools
