// What became of the copies of each function, and the text that braid_stats_json gives. Counting is
// relaxed atomics in a fixed array, from any thread.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <string>

#include "multipath/engine.h"
#include "multipath/transfer.h"

namespace braid::library {

enum class EntryPoint : uint8_t { kCopy, kCopyBatch, kGather, kScatter };
inline constexpr int kEntryPointCount = static_cast<int>(EntryPoint::kScatter) + 1;

/// "braid_copy", ...
const char* entry_point_name(EntryPoint entry_point);

class Statistics {
 public:
  /// One part of a call: `bytes` that went the same way for the same reason.
  void add(EntryPoint entry_point, const multipath::Outcome& outcome, uint64_t bytes) noexcept {
    Cell& cell = cells_[index_of(entry_point, outcome.verdict, outcome.mover)];
    cell.calls.fetch_add(1, std::memory_order_relaxed);
    cell.bytes.fetch_add(bytes, std::memory_order_relaxed);
  }

  /// One line of JSON, without a newline, with what the engine says of its paths; waits up to
  /// `wait_ms` for transfers in flight.
  std::string render(multipath::Engine& engine, int wait_ms) const;

 private:
  struct Cell {
    std::atomic<uint64_t> calls{0};
    std::atomic<uint64_t> bytes{0};
  };
  static constexpr size_t index_of(EntryPoint entry_point, multipath::Verdict verdict,
                                   multipath::Mover mover) noexcept {
    const size_t row =
        static_cast<size_t>(entry_point) * multipath::kVerdictCount + static_cast<size_t>(verdict);
    return row * multipath::kMoverCount + static_cast<size_t>(mover);
  }

  std::array<Cell, size_t{kEntryPointCount} * multipath::kVerdictCount * multipath::kMoverCount>
      cells_{};
};

}  // namespace braid::library
