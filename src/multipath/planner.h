// Chooses the mover and the number of paths of a copy: the cost model (cost_model.h), with the
// user's options and the movers that this process has. Constant once made, pure; threads: any.
#pragma once

#include <array>
#include <cstdint>

#include "base/options.h"
#include "multipath/batch_split.h"
#include "multipath/copy_split.h"
#include "multipath/cost_model.h"
#include "multipath/transfer.h"

namespace braid::multipath {

class Planner {
 public:
  Planner(const CostModel& costs, const Options& options);

  /// Smaller contiguous copies are native, for any number of paths. UINT64_MAX: all are.
  uint64_t threshold_bytes(Direction direction) const {
    return thresholds_[static_cast<size_t>(direction)];
  }
  /// The smaller threshold of the two directions.
  uint64_t threshold_bytes() const;

  /// A first check without a driver call: a single comparison for most small copies.
  bool may_gain(const Batch& batch, uint64_t size_bytes) const;

  /// The mover that may carry the batch; kNative: none. `has_kernels`: the pull kernels are loaded
  /// in the target's context.
  Mover mover_for(const Batch& batch, bool has_kernels) const;

  /// Plans for the paths and the moment that `request` names; fills in the rest of the request.
  Plan plan(const Batch& batch, uint64_t size_bytes, PlanRequest request) const;
  double native_bytes_per_us(Direction direction) const {
    return costs_.of(direction).native_bytes_per_us;
  }
  const DirectionCosts& costs_of(Direction direction) const { return costs_.of(direction); }
  CopySplit split_copy(Direction direction, const CopySplitRequest& request) const {
    return multipath::split_copy(costs_.of(direction), request);
  }
  /// Of a batch with an own link (OwnLink), over so many relays.
  BatchSplit split_batch(const Batch& batch, uint64_t size_bytes, size_t relays,
                         bool is_cold) const;

 private:
  CostModel costs_;
  MoverChoice mover_;
  uint64_t asked_threshold_bytes_;
  std::array<uint64_t, 2> thresholds_{};  // by direction
};

}  // namespace braid::multipath
