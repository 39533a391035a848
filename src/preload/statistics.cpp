#include "preload/statistics.h"

namespace braid::preload {

const char* cost_class_name(CostClass cost_class) {
  return cost_class == CostClass::kAccelerated ? "accelerated" : "passed_through";
}

Count Statistics::get(HookId hook, multipath::Verdict verdict,
                      multipath::Mover mover) const noexcept {
  const Cell& cell = cells_[index_of(hook, verdict, mover)];
  return {cell.calls.load(std::memory_order_relaxed), cell.bytes.load(std::memory_order_relaxed)};
}

bool Statistics::empty() const noexcept {
  bool is_empty = true;
  for_each([&](HookId, multipath::Verdict, multipath::Mover, const Count&) { is_empty = false; });
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
