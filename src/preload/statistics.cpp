#include "preload/statistics.h"

#include <fmt/core.h>
#include <fmt/format.h>

#include <iterator>

namespace braid::preload {
namespace {

using multipath::Direction;
using multipath::PathCount;
using multipath::Verdict;
using Out = std::back_insert_iterator<std::string>;

const char* text_of(Direction direction) {
  return direction == Direction::kHostToDevice ? "h2d" : "d2h";
}

// Calls visit(hook, verdict, count) for each pair that was counted, in the order of the table.
template <typename Visit>
void for_each_count(const Statistics& statistics, Visit visit) {
  for (int hook = 0; hook < kHookCount; ++hook)
    for (int verdict = 0; verdict < multipath::kVerdictCount; ++verdict) {
      const Count count = statistics.get(static_cast<HookId>(hook), static_cast<Verdict>(verdict));
      if (count.calls != 0) visit(static_cast<HookId>(hook), static_cast<Verdict>(verdict), count);
    }
}

std::string render_json(int pid, const Statistics& statistics,
                        const std::vector<PathCount>& paths) {
  std::string line;
  Out out = std::back_inserter(line);
  fmt::format_to(out, R"({{"braid":{{"pid":{},"entry_points":{{)", pid);
  int open_hook = -1;
  for_each_count(statistics, [&](HookId hook, Verdict verdict, const Count& count) {
    if (hook != open_hook)
      fmt::format_to(out, R"({}"{}":{{)", open_hook < 0 ? "" : "},",
                     hooks()[static_cast<size_t>(hook)].symbol);
    else
      line += ',';
    open_hook = hook;
    fmt::format_to(out, R"("{}":{{"calls":{},"bytes":{}}})", multipath::verdict_name(verdict),
                   count.calls, count.bytes);
  });
  line += open_hook < 0 ? "},\"paths\":[" : "}},\"paths\":[";
  const char* separator = "";
  for (const PathCount& path : paths) {
    fmt::format_to(out, R"({}{{"target":{},"via":{},"direction":"{}","slices":{},"bytes":{}}})",
                   separator, path.target, path.via, text_of(path.direction), path.slices,
                   path.bytes);
    separator = ",";
  }
  line += "]}}\n";
  return line;
}

double share_percent(const PathCount& path, const std::vector<PathCount>& paths) {
  uint64_t total = 0;
  for (const PathCount& other : paths)
    if (other.target == path.target && other.direction == path.direction) total += other.bytes;
  return total == 0 ? 0 : 100.0 * static_cast<double>(path.bytes) / static_cast<double>(total);
}

std::string render_text(int pid, const Statistics& statistics,
                        const std::vector<PathCount>& paths) {
  std::string text = fmt::format("braid: copies of process {}\n", pid);
  Out out = std::back_inserter(text);
  fmt::format_to(out, "  {:<26} {:<16} {:>10} {:>16}\n", "entry point", "outcome", "calls",
                 "bytes");
  for_each_count(statistics, [&](HookId hook, Verdict verdict, const Count& count) {
    fmt::format_to(out, "  {:<26} {:<16} {:>10} {:>16}\n",
                   hooks()[static_cast<size_t>(hook)].symbol, multipath::verdict_name(verdict),
                   count.calls, count.bytes);
  });
  if (paths.empty()) return text;
  fmt::format_to(out, "  {:<26} {:<16} {:>10} {:>16} {:>8}\n", "path", "direction", "slices",
                 "bytes", "share");
  for (const PathCount& path : paths) {
    const std::string name = path.via == path.target
                                 ? fmt::format("GPU {} direct", path.target)
                                 : fmt::format("GPU {} through GPU {}", path.target, path.via);
    fmt::format_to(out, "  {:<26} {:<16} {:>10} {:>16} {:>7.1f}%\n", name, text_of(path.direction),
                   path.slices, path.bytes, share_percent(path, paths));
  }
  return text;
}

}  // namespace

Count Statistics::get(HookId hook, Verdict verdict) const {
  const Cell& cell = cells_[static_cast<size_t>(hook)][static_cast<size_t>(verdict)];
  return {cell.calls.load(std::memory_order_relaxed), cell.bytes.load(std::memory_order_relaxed)};
}

bool Statistics::empty() const {
  bool found = false;
  for_each_count(*this, [&](HookId, Verdict, const Count&) { found = true; });
  return !found;
}

void Statistics::clear() {
  for (auto& row : cells_)
    for (Cell& cell : row) {
      cell.calls.store(0, std::memory_order_relaxed);
      cell.bytes.store(0, std::memory_order_relaxed);
    }
}

std::string render(StatsFormat format, int pid, const Statistics& statistics,
                   const std::vector<PathCount>& paths) {
  switch (format) {
    case StatsFormat::kText: return render_text(pid, statistics, paths);
    case StatsFormat::kJson: return render_json(pid, statistics, paths);
    case StatsFormat::kNone: break;
  }
  return {};
}

}  // namespace braid::preload
