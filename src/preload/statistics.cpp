#include "preload/statistics.h"

namespace braid::preload {

const char* entry_point_name(EntryPoint entry_point) {
  switch (entry_point) {
    case k_braid_copy: return "braid_copy";
    case k_braid_copy_batch: return "braid_copy_batch";
    case k_braid_copy_batch_sparing: return "braid_copy_batch_sparing";
    case k_braid_copy_rows: return "braid_copy_rows";
    case k_braid_gather: return "braid_gather";
    case k_braid_scatter: return "braid_scatter";
    default: return hooks()[static_cast<size_t>(entry_point)].symbol;
  }
}

const char* cost_class_name(CostClass cost_class) {
  return cost_class == CostClass::kAccelerated ? "accelerated" : "passed_through";
}

Count Statistics::get(EntryPoint entry_point, multipath::Verdict verdict,
                      multipath::Mover mover) const noexcept {
  const Cell& cell = cells_[index_of(entry_point, verdict, mover)];
  return {cell.calls.load(std::memory_order_relaxed), cell.bytes.load(std::memory_order_relaxed)};
}

bool Statistics::empty() const noexcept {
  bool is_empty = true;
  for_each(
      [&](EntryPoint, multipath::Verdict, multipath::Mover, const Count&) { is_empty = false; });
  return is_empty;
}

void Statistics::clear() noexcept {
  for (Cell& cell : cells_) {
    cell.calls.store(0, std::memory_order_relaxed);
    cell.bytes.store(0, std::memory_order_relaxed);
  }
  for (Histogram& cost_ns : costs_ns_) cost_ns.clear();
}

}  // namespace braid::preload
