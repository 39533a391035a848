#include "library/statistics.h"

#include <unistd.h>

#include <memory>

#include "multipath/statistics_json.h"

namespace braid::library {

using multipath::Mover;
using multipath::Verdict;

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
  const auto append = [](void* text, const char* more, size_t size_bytes) {
    static_cast<std::string*>(text)->append(more, size_bytes);
  };
  std::string text;
  {
    std::array<char, 1024> buffer;
    TextWriter out(buffer, append, &text);
    multipath::StatisticsJson json(getpid(), out);
    for (int entry_point = 0; entry_point < kEntryPointCount; ++entry_point)
      for (int verdict = 0; verdict < multipath::kVerdictCount; ++verdict)
        for (int mover = 0; mover < multipath::kMoverCount; ++mover) {
          const auto key = static_cast<EntryPoint>(entry_point);
          const auto why = static_cast<Verdict>(verdict);
          const auto how = static_cast<Mover>(mover);
          const Cell& cell = cells_[index_of(key, why, how)];
          const multipath::CopyCount count{cell.calls.load(std::memory_order_relaxed),
                                           cell.bytes.load(std::memory_order_relaxed)};
          if (count.calls != 0) json.add(entry_point_name(key), why, how, count);
        }
    const auto counts = std::make_unique<multipath::PathCounts>();
    engine.collect(wait_ms, *counts);
    for (const multipath::PathCount& path : counts->all()) json.add(path);
    std::array<multipath::RelayCount, multipath::kMostGpus> relays;
    const size_t relay_count = engine.count_relays(relays);
    for (size_t i = 0; i < relay_count; ++i) json.add(relays[i]);
    for (const std::string& problem : engine.problems()) json.add_problem(problem);
    json.end();
  }
  return text;
}

}  // namespace braid::library
