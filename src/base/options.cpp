#include "base/options.h"

#include <algorithm>
#include <charconv>
#include <csignal>
#include <cstdlib>
#include <sstream>

#include "base/try.h"
#include "base/units.h"

extern char** environ;

namespace braid {
namespace {

constexpr const char* kExperimentVariable = "BRAID_EXPERIMENT";

using Setter = Status (*)(Options&, const std::string& text, const char* values);

struct Entry {
  OptionRow row;
  Setter set;
};

template <auto Field, uint64_t Least = 1, uint64_t Most = UINT64_MAX>
Status set_size(Options& options, const std::string& text, const char*) {
  BRAID_LET(size, parse_size(text));
  if (size == 0) return Status::error("'" + text + "' is not a size above zero");
  if (size < Least || size > Most)
    return Status::error("'" + text + "' is too " + (size < Least ? "small" : "large"),
                         "Write " + format_size(Least) + " or more" +
                             (Most == UINT64_MAX ? "" : ", up to " + format_size(Most)));
  options.*Field = static_cast<std::remove_reference_t<decltype(options.*Field)>>(size);
  return {};
}

Status set_relays(Options& options, const std::string& text, const char*) {
  BRAID_LET(relays, parse_relays(text));
  options.relays = std::move(relays);
  return {};
}

// "text|json|prometheus" is shown as "text, json or prometheus".
Status none_of(const std::string& text, std::string values) {
  if (const size_t last = values.rfind('|'); last != std::string::npos)
    values.replace(last, 1, " or ");
  for (size_t at; (at = values.find('|')) != std::string::npos;) values.replace(at, 1, ", ");
  return Status::error("'" + text + "' is not a value of this option", "Write " + values);
}

// The words of `values` mean `Meanings`, in this order.
template <auto Field, auto... Meanings>
Status set_choice(Options& options, const std::string& text, const char* values) {
  std::istringstream words(values);
  std::string word;
  for (const auto meaning : {Meanings...})
    if (std::getline(words, word, '|') && word == text) {
      options.*Field = meaning;
      return {};
    }
  return none_of(text, values);
}

template <auto Field, int Least, int Most>
Status set_number(Options& options, const std::string& text, const char*) {
  int number = 0;
  const char* end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, number);
  if (error != std::errc() || rest != end || number < Least || number > Most)
    return Status::error("'" + text + "' is not a number of this option",
                         "Write " + std::to_string(Least) + " to " + std::to_string(Most));
  options.*Field = static_cast<std::remove_reference_t<decltype(options.*Field)>>(number);
  return {};
}

template <auto Field>
Status set_text(Options& options, const std::string& text, const char*) {
  options.*Field = text;
  return {};
}

Status set_threshold(Options& options, const std::string& text, const char* values) {
  if (text != "auto") return set_size<&Options::threshold_bytes>(options, text, values);
  options.threshold_bytes = 0;
  return {};
}

Status set_costs(Options& options, const std::string& text, const char*) {
  options.costs = text == "auto" ? "" : text;
  return {};
}

Status set_processes(Options& options, const std::string& text, const char* values) {
  if (text == "none") options.process_table.clear();
  return text == "none" || text == "table" ? Status() : none_of(text, values);
}

// "slice=8K,blocks=4": what measurements made constant, for sweeps and for tests of whole programs.
Status set_experiment(Options& options, const std::string& text) {
  std::istringstream items(text);
  for (std::string item; std::getline(items, item, ',');) {
    const std::string value = item.substr(item.find('=') + 1);
    Status status = Status::error("'" + item + "' is no experiment", "HACKING.md names them");
    if (item.starts_with("slice="))
      status =
          set_size<&Options::slice_bytes, kLeastSliceBytes, kMostSliceBytes>(options, value, "");
    else if (item.starts_with("blocks="))
      status = set_number<&Options::blocks_per_path, 1, 64>(options, value, "");
    if (!status.ok()) return status;
  }
  return {};
}

const std::vector<Entry>& entries() {
  static const std::vector<Entry> table = {
      {{"BRAID_RELAYS", "all|none|LIST", "GPU ordinals", "all",
        "which GPUs may relay: all, none, or a list: 1,2",
        "every relay adds its link: 1 GiB to the GPU is 1.82 times native with two links, "
        "3.06 with four: docs/measurements/2026-11-27-2xH200.md, 2026-11-27-4xH200.md"},
       set_relays},
      {{"BRAID_OPENING", "background|wait", "", "background",
        "when relays open: in the background with a GPU's first copy that would gain, copies being "
        "native until then; or the program waits, when it first pins memory",
        "a context takes 0.14 to 0.17 s, and four for each of four processes at once 2.5 to 3: "
        "docs/measurements/2026-11-22-4xH200-start.md"},
       set_choice<&Options::waits_for_relays, false, true>},
      {{"BRAID_STATS", "text|json|prometheus", "", "none",
        "statistics at exit: text, json or prometheus", "off costs nothing: docs/statistics.md"},
       set_choice<&Options::stats, StatsFormat::kText, StatsFormat::kJson,
                  StatsFormat::kPrometheus>},
      {{"BRAID_STATS_FILE", "PATH", "path", "stderr",
        "where the statistics go, %p being the process; alone it means prometheus",
        "stderr needs no clean-up"},
       set_text<&Options::stats_file>},
      {{"BRAID_STATS_SIGNAL", "USR1|USR2", "", "none",
        "show the statistics on this signal too: USR1 or USR2", "signals are the program's"},
       set_choice<&Options::stats_signal, SIGUSR1, SIGUSR2>},
      {{"BRAID_STATS_INTERVAL", "SECONDS", "s", "none",
        "show the statistics so often too, while the program goes on",
        "a thread of braid's wakes up for it: docs/statistics.md"},
       set_number<&Options::stats_interval_s, 1, 24 * 3600>},
      {{"BRAID_LOG", "stderr|PATH", "path", "none",
        "a line for each copy over the threshold, on stderr or in a file: stderr or PATH, with %p",
        "on, each copy opens, writes and closes a file: docs/statistics.md"},
       set_text<&Options::log>},
      {{"BRAID_THRESHOLD", "auto|SIZE", "bytes", "auto",
        "smaller copies stay native, others do not; auto: what the cost model expects to gain",
        "no copy slower than native: docs/tuning.md"},
       set_threshold},
      {{"BRAID_COSTS", "auto|none|FILE", "file", "auto",
        "what copies cost here: a file that braid tune wrote, or none; auto: this server's in the "
        "user's cache",
        "defaults without a file: docs/tuning.md"},
       set_costs},
      {{"BRAID_PROCESSES", "table|none", "", "table",
        "the processes of this user that use braid know of each other by a table in /dev/shm: "
        "whose "
        "links and NICs are busy, and whose turn it is to open relays; none: not this one",
        "relays on links that other processes use add nothing: MMA section 3.4.2"},
       set_processes},
      {{"BRAID_PAGEABLE", "N", "threads", "by CPUs",
        "threads that stage copies of pageable memory; 0: such copies stay native. By CPUs: a "
        "quarter of those the process may use by its mask and its container's quota, from 1 to "
        "16; 0 on one alone",
        "the other CPUs are the program's; 1 GiB is 5.8 and 3.7 times native: "
        "docs/measurements/2026-11-22-4xH200.md"},
       set_number<&Options::pageable_threads, 0, 64>},
      {{"BRAID_MOVER", "auto|kernel|copy-engine", "", "auto",
        "what moves the bytes: kernel (some SM time), copy-engine (none; batches are native), or "
        "auto: copy engines, and kernels for batches",
        "copy engines cost a busy neighbour 0 to 4 % of its steps, kernels 47 to 74: "
        "docs/measurements/2026-11-22-2xH200-probes.md"},
       set_choice<&Options::mover, MoverChoice::kAuto, MoverChoice::kKernel,
                  MoverChoice::kCopyEngine>},
      {{"BRAID_DEVICE_MEMORY", "SIZE", "bytes", "64M",
        "copy engines: most memory of each GPU that relay buffers take",
        "four channels of 16 MiB: 1 GiB at 108.6 and 108.9 GB/s, with 8 MiB each at 104.8 "
        "and 107.6: docs/measurements/2026-11-22-2xH200-law.md"},
       set_size<&Options::device_memory_bytes, kLeastDeviceMemoryBytes>},
  };
  return table;
}

}  // namespace

bool RelayChoice::allows(int gpu) const {
  if (kind != Kind::kList) return kind == Kind::kAll;
  return std::find(gpus.begin(), gpus.end(), gpu) != gpus.end();
}

Result<RelayChoice> parse_relays(const std::string& text) {
  if (text == "all") return RelayChoice{RelayChoice::Kind::kAll, {}};
  if (text == "none") return RelayChoice{RelayChoice::Kind::kNone, {}};
  RelayChoice choice{RelayChoice::Kind::kList, {}};
  const char* at = text.data();
  const char* end = at + text.size();
  while (true) {
    int gpu = 0;
    const auto [rest, error] = std::from_chars(at, end, gpu);
    if (error != std::errc() || gpu < 0 || (rest != end && *rest != ','))
      return Status::error("'" + text + "' is not a list of relays",
                           "Write all, none, or GPU ordinals: 1,2,3");
    choice.gpus.push_back(gpu);
    if (rest == end) return choice;
    at = rest + 1;
  }
}

const std::vector<OptionRow>& option_table() {
  static const std::vector<OptionRow> rows = [] {
    std::vector<OptionRow> all;
    for (const Entry& entry : entries()) all.push_back(entry.row);
    return all;
  }();
  return rows;
}

namespace {

// The XDG rule: what is not absolute is ignored.
std::string cache_folder_of(const std::function<const char*(const char*)>& get) {
  const char* cache = get("XDG_CACHE_HOME");
  if (cache != nullptr && *cache == '/') return cache;
  const char* home = get("HOME");
  return home != nullptr && *home == '/' ? std::string(home) + "/.cache" : "";
}

// Not in the table, since `braid run` has no such options.
constexpr const char* kOtherVariables[] = {
    // of the emulated server
    "BRAID_SERVER",
    "BRAID_FAULTS",
    // by which `braid run` tells the program
    "BRAID_LEND",
    "BRAID_STARTED",
    // of the fabric, and of transfers
    "BRAID_FABRIC_ENDPOINTS",
    "BRAID_FABRIC_NICS",
    "BRAID_FABRIC_SECRET_FILE",
    "BRAID_TRANSFER_STORE",
    "BRAID_RUNTIME_DIR",
    // of python/braid
    "BRAID_TRANSFER_PROVIDERS",
    "BRAID_LIBRARY",
    "BRAID_KV_LIBRARY",
    "BRAID_TRANSFER_LIBRARY",
};

}  // namespace

std::vector<std::string> unknown_variables() {
  std::vector<std::string> unknown;
  for (char** variable = environ; *variable != nullptr; ++variable) {
    const std::string text = *variable;
    const std::string name = text.substr(0, text.find('='));
    bool is_known = !name.starts_with("BRAID_") || name == kExperimentVariable;
    for (const char* other : kOtherVariables) is_known = is_known || name == other;
    for (const Entry& entry : entries()) is_known = is_known || name == entry.row.name;
    if (!is_known) unknown.push_back(name);
  }
  return unknown;
}

Result<Options> read_options(const std::function<const char*(const char*)>& get) {
  Options options;
  options.process_table = kUsualProcessTable;
  for (const Entry& entry : entries()) {
    const char* text = get(entry.row.name);
    if (text == nullptr || *text == '\0') continue;
    const Status status = entry.set(options, text, entry.row.values);
    if (!status.ok()) return Status::error(std::string(entry.row.name) + ": " + status.message());
  }
  if (const char* text = get(kExperimentVariable); text != nullptr && *text != '\0')
    if (const Status status = set_experiment(options, text); !status.ok())
      return Status::error(std::string(kExperimentVariable) + ": " + status.message());
  options.cache_folder = cache_folder_of(get);
  if (options.stats == StatsFormat::kNone && !options.stats_file.empty())
    options.stats = StatsFormat::kPrometheus;
  if (options.stats == StatsFormat::kNone &&
      (options.stats_signal != 0 || options.stats_interval_s != 0))
    options.stats = StatsFormat::kText;
  // CUDA's own rule: 1 to 32, and 8 when it is not set; what it cannot read it ignores.
  if (const char* queues = get("CUDA_DEVICE_MAX_CONNECTIONS");
      queues != nullptr && *queues != '\0') {
    const int asked = std::atoi(queues);
    if (asked >= 1 && asked <= 32) options.hardware_queues = asked;
  }
  return options;
}

}  // namespace braid
