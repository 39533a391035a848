#include "multipath/planner.h"

#include <algorithm>

#include "cuda/kernels/pull.h"

namespace braid::multipath {
namespace {

// As many paths as there can be, at the best of moments.
constexpr Moment kBest{.paths = cuda::kMaxPaths, .is_staged = false};

}  // namespace

Planner::Planner(const CostModel& costs, const Options& options)
    : costs_(costs), mover_(options.mover), asked_threshold_bytes_(options.threshold_bytes) {
  for (const Direction direction : {Direction::kHostToDevice, Direction::kDeviceToHost})
    thresholds_[static_cast<size_t>(direction)] =
        multipath::threshold_bytes(costs_, request(direction, 1, kBest, false));
}

// Copy engines carry contiguous copies, kernels batches: a contiguous copy then needs no SM that
// the program may hold, and a batch pays nothing for each segment. The user may have kernels carry
// everything, or nothing.
Request Planner::request(Direction direction, uint64_t segments, const Moment& moment,
                         bool spares_sms) const {
  const bool is_batch = segments > 1;
  const bool may_use_kernels = moment.has_kernels && !spares_sms;
  const MoverSet movers{.kernel = may_use_kernels && (mover_ == MoverChoice::kKernel ||
                                                      (mover_ == MoverChoice::kAuto && is_batch)),
                        .copy_engine = !is_batch && mover_ != MoverChoice::kKernel};
  return {.direction = direction,
          .segments = segments,
          .paths = moment.paths,
          .far_relays = moment.far_relays,
          .is_cold = moment.is_cold,
          .kernels_blocked = moment.kernels_blocked,
          .is_staged = moment.is_staged,
          .movers = movers,
          .asked_threshold_bytes = asked_threshold_bytes_};
}

uint64_t Planner::threshold_bytes() const {
  return *std::min_element(thresholds_.begin(), thresholds_.end());
}

// Small segments are slow natively, so a batch may gain from fewer bytes. Asking the model is
// cheaper than asking the driver about every segment.
bool Planner::may_gain(const Batch& batch, uint64_t size_bytes) const {
  return size_bytes >= threshold_bytes(batch.direction) ||
         (batch.segments.size() > 1 && plan(batch, size_bytes, kBest).mover != Mover::kNative);
}

Plan Planner::plan(const Batch& batch, uint64_t size_bytes, const Moment& moment) const {
  Request asked = request(batch.direction, batch.segments.size(), moment, batch.spares_sms);
  asked.size_bytes = size_bytes;
  return multipath::plan(costs_, asked);
}

}  // namespace braid::multipath
