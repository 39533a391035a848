// Which way a copy goes and over how many paths: the cost model (cost_model.h) asked with the
// user's options and the movers that this process has. Constant once made, pure; threads: any.
#pragma once

#include <array>
#include <cstdint>

#include "base/options.h"
#include "multipath/copy_plan.h"
#include "multipath/cost_model.h"
#include "multipath/transfer.h"

namespace braid::multipath {

/// What a target knows of the moment of a copy.
struct Moment {
  int paths = 1;       ///< available, the direct one included
  int far_relays = 0;  ///< of these
  bool is_cold = false;
  bool kernels_blocked = false;
  bool has_kernels = true;  ///< the pull kernels are loaded in the target's context
  bool is_staged = true;    ///< copy engines reach the memory through buffers only (copy_plan.h)
};

class Planner {
 public:
  Planner(const CostModel& costs, const Options& options);

  /// Smaller contiguous copies are native, however many paths there are. UINT64_MAX: all are.
  uint64_t threshold_bytes(Direction direction) const {
    return thresholds_[static_cast<size_t>(direction)];
  }
  /// The smaller direction's.
  uint64_t threshold_bytes() const;

  /// Before anything is asked of the driver: no more than a compare for most small copies.
  bool may_gain(const Batch& batch, uint64_t size_bytes) const;

  Plan plan(const Batch& batch, uint64_t size_bytes, const Moment& moment) const;
  double native_bytes_per_us(Direction direction) const {
    return costs_.of(direction).native_bytes_per_us;
  }
  CopyPlan plan_copy(Direction direction, const CopyRequest& request) const {
    return multipath::plan_copy(costs_.of(direction), request);
  }

 private:
  Request request(Direction direction, uint64_t segments, const Moment& moment,
                  bool spares_sms) const;

  CostModel costs_;
  MoverChoice mover_;
  uint64_t asked_threshold_bytes_;
  std::array<uint64_t, 2> thresholds_{};  // by direction
};

}  // namespace braid::multipath
