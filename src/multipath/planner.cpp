#include "multipath/planner.h"

#include <algorithm>

#include "cuda/kernels/pull.h"

namespace braid::multipath {
namespace {

// As many paths as there can be, at the best of moments.
PlanRequest at_best(Mover mover) {
  return {.paths = cuda::kMaxPaths, .is_staged = false, .mover = mover};
}

}  // namespace

Planner::Planner(const CostModel& costs, const Options& options)
    : costs_(costs), mover_(options.mover), asked_threshold_bytes_(options.threshold_bytes) {
  PlanRequest linear =
      at_best(mover_ == MoverChoice::kKernel ? Mover::kKernel : Mover::kCopyEngine);
  linear.asked_threshold_bytes = asked_threshold_bytes_;
  for (const Direction direction : {Direction::kHostToDevice, Direction::kDeviceToHost}) {
    linear.direction = direction;
    thresholds_[static_cast<size_t>(direction)] = multipath::threshold_bytes(costs_, linear);
  }
}

// Copy engines carry contiguous copies, kernels batches: a contiguous copy then needs no SM that
// the program may hold, and a batch pays nothing for each segment. The user may have kernels carry
// everything, or nothing. Without a kernel on the target, a contiguous copy is for copy engines,
// and a batch for the kernels of relays.
Mover Planner::mover_for(const Batch& batch, bool has_kernels) const {
  const bool is_batch = batch.segments().size() > 1;
  const bool spares_target = batch.own_link != nullptr;
  const bool by_kernels = (mover_ == MoverChoice::kKernel && !spares_target) ||
                          (mover_ != MoverChoice::kCopyEngine && is_batch);
  if (by_kernels)
    return (has_kernels || spares_target) && !batch.spares_sms ? Mover::kKernel : Mover::kNative;
  return is_batch ? Mover::kNative : Mover::kCopyEngine;
}

uint64_t Planner::threshold_bytes() const {
  return *std::min_element(thresholds_.begin(), thresholds_.end());
}

// Small segments are slow natively, so a batch may gain from fewer bytes. Asking the model is
// cheaper than asking the driver about every segment.
bool Planner::may_gain(const Batch& batch, uint64_t size_bytes) const {
  if (size_bytes >= threshold_bytes(batch.direction)) return true;
  return batch.segments().size() > 1 &&
         plan(batch, size_bytes, at_best(mover_for(batch, true))).mover != Mover::kNative;
}

Plan Planner::plan(const Batch& batch, uint64_t size_bytes, PlanRequest request) const {
  request.direction = batch.direction;
  request.size_bytes = size_bytes;
  request.segments = batch.segments().size();
  request.asked_threshold_bytes = asked_threshold_bytes_;
  request.spares_target = batch.own_link != nullptr;
  return multipath::plan(costs_, request);
}

BatchSplit Planner::split_batch(const Batch& batch, uint64_t size_bytes, size_t relays,
                                bool is_cold) const {
  const uint64_t segments = batch.segments().size();
  int paths = 1;
  const double native_us = expected_us(
      costs_, Mover::kNative,
      {.direction = batch.direction, .size_bytes = size_bytes, .segments = segments}, paths);
  return multipath::split_batch(costs_.of(batch.direction), {.size_bytes = size_bytes,
                                                             .segments = segments,
                                                             .relays = static_cast<int>(relays),
                                                             .native_us = native_us,
                                                             .is_cold = is_cold});
}

}  // namespace braid::multipath
