// What became of each intercepted copy: calls and bytes by entry point and verdict, and how they
// are shown when the process ends. Counting is relaxed atomics in a fixed array; nothing allocates.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "base/options.h"
#include "multipath/engine.h"
#include "multipath/transfer.h"
#include "preload/hooks.h"

namespace braid::preload {

struct Count {
  uint64_t calls = 0;
  uint64_t bytes = 0;
};

/// Safe from any thread. Constant-initialised: usable before any constructor has run.
class Statistics {
 public:
  void add(HookId hook, multipath::Verdict verdict, uint64_t bytes) noexcept {
    Cell& cell = cells_[static_cast<size_t>(hook)][static_cast<size_t>(verdict)];
    cell.calls.fetch_add(1, std::memory_order_relaxed);
    cell.bytes.fetch_add(bytes, std::memory_order_relaxed);
  }
  Count get(HookId hook, multipath::Verdict verdict) const;
  bool empty() const;
  void clear();

 private:
  struct Cell {
    std::atomic<uint64_t> calls{0};
    std::atomic<uint64_t> bytes{0};
  };
  std::array<std::array<Cell, multipath::kVerdictCount>, kHookCount> cells_{};
};

/// One line of JSON, or a table, ending in a newline; empty for StatsFormat::kNone.
std::string render(StatsFormat format, int pid, const Statistics& statistics,
                   const std::vector<multipath::PathCount>& paths);

}  // namespace braid::preload
