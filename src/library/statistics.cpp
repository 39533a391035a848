#include "library/statistics.h"

#include <unistd.h>

#include <nlohmann/json.hpp>

namespace braid::library {

using multipath::Direction;
using multipath::PathCount;
using multipath::Verdict;
using nlohmann::ordered_json;

const char* entry_point_name(EntryPoint entry_point) {
  switch (entry_point) {
    case EntryPoint::kCopy: return "braid_copy";
    case EntryPoint::kCopyBatch: return "braid_copy_batch";
    case EntryPoint::kGather: return "braid_gather";
    case EntryPoint::kScatter: return "braid_scatter";
  }
  return "unknown";
}

std::string Statistics::render(multipath::Engine& engine, int wait_ms) const {
  ordered_json entry_points = ordered_json::object();
  for (int entry_point = 0; entry_point < kEntryPointCount; ++entry_point)
    for (int verdict = 0; verdict < multipath::kVerdictCount; ++verdict) {
      const Cell& cell = cells_[static_cast<size_t>(entry_point)][static_cast<size_t>(verdict)];
      const uint64_t calls = cell.calls.load(std::memory_order_relaxed);
      if (calls == 0) continue;
      entry_points[entry_point_name(static_cast<EntryPoint>(entry_point))]
                  [multipath::verdict_name(static_cast<Verdict>(verdict))] = {
                      {"calls", calls}, {"bytes", cell.bytes.load(std::memory_order_relaxed)}};
    }
  ordered_json paths = ordered_json::array();
  for (const PathCount& path : engine.collect(wait_ms))
    paths.push_back({{"target", path.target},
                     {"via", path.via},
                     {"direction", path.direction == Direction::kHostToDevice ? "h2d" : "d2h"},
                     {"slices", path.slices},
                     {"bytes", path.bytes}});
  const ordered_json all = {{"pid", getpid()},
                            {"entry_points", std::move(entry_points)},
                            {"paths", std::move(paths)},
                            {"problems", engine.problems()}};
  return ordered_json{{"braid", all}}.dump();
}

}  // namespace braid::library
