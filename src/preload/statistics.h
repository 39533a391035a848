// The outcomes of intercepted copies: calls and bytes by entry point, verdict and mover, and the
// time that the copies cost the calling thread. Counting is relaxed atomics in fixed arrays: it
// neither allocates nor waits.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

#include "base/histogram.h"
#include "multipath/statistics_json.h"
#include "multipath/transfer.h"
#include "preload/hooks.h"

namespace braid::preload {

using Count = multipath::CopyCount;

/// The function whose copies are counted: a hook (hooks.h), or a function of include/braid/braid.h.
using EntryPoint = int;
enum LibraryFunction : EntryPoint {
  k_braid_copy = kHookCount,
  k_braid_copy_batch,
  k_braid_copy_batch_sparing,
  k_braid_copy_rows,
  k_braid_gather,
  k_braid_scatter,
  kEntryPointCount
};
/// "cuMemcpyHtoDAsync_v2", "braid_copy", ...
const char* entry_point_name(EntryPoint entry_point);

/// Copies fall in two classes by what braid did with them; each has its own cost.
enum class CostClass : uint8_t { kAccelerated, kPassedThrough };
inline constexpr int kCostClassCount = 2;

/// "accelerated", "passed_through".
const char* cost_class_name(CostClass cost_class);

/// Safe from any thread, reading in a signal handler too. Constant-initialised: usable before any
/// constructor has run.
class Statistics {
 public:
  /// `cost_ns`: the call's time in braid, without the driver's own copy or synchronisation.
  void add(EntryPoint entry_point, const multipath::Outcome& outcome, uint64_t bytes,
           uint64_t cost_ns) noexcept {
    Cell& cell = cells_[index_of(entry_point, outcome.verdict, outcome.mover)];
    cell.calls.fetch_add(1, std::memory_order_relaxed);
    cell.bytes.fetch_add(bytes, std::memory_order_relaxed);
    const bool is_carried = outcome.verdict == multipath::Verdict::kAccelerated;
    costs_ns_[is_carried ? 0 : 1].add(cost_ns);
  }

  Count get(EntryPoint entry_point, multipath::Verdict verdict,
            multipath::Mover mover) const noexcept;
  const Histogram& cost_ns(CostClass cost_class) const noexcept {
    return costs_ns_[static_cast<size_t>(cost_class)];
  }
  bool empty() const noexcept;
  void clear() noexcept;

  /// Calls visit(entry point, verdict, mover, count) for all counts, in the order of the table.
  template <typename Visit>
  void for_each(Visit visit) const {
    for (EntryPoint key = 0; key < kEntryPointCount; ++key)
      for (int verdict = 0; verdict < multipath::kVerdictCount; ++verdict)
        for (int mover = 0; mover < multipath::kMoverCount; ++mover) {
          const auto why = static_cast<multipath::Verdict>(verdict);
          const auto how = static_cast<multipath::Mover>(mover);
          const Count count = get(key, why, how);
          if (count.calls != 0) visit(key, why, how, count);
        }
  }

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
  std::array<Histogram, kCostClassCount> costs_ns_{};
};

}  // namespace braid::preload
