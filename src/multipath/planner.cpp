#include "multipath/planner.h"

#include <algorithm>

#include "cuda/kernels/pull.h"

namespace braid::multipath {
namespace {

// As many paths as there can be, at the best of moments.
constexpr Moment kBest{.paths = cuda::kMaxPaths};

}  // namespace

Planner::Planner(const CostModel& costs, const Options& options, bool has_copy_engine)
    : costs_(costs),
      mover_(options.mover),
      has_copy_engine_(has_copy_engine),
      asked_threshold_bytes_(options.threshold_bytes),
      asked_slice_bytes_(options.slice_bytes) {
  for (const Direction direction : {Direction::kHostToDevice, Direction::kDeviceToHost})
    thresholds_[static_cast<size_t>(direction)] =
        multipath::threshold_bytes(costs_, request(direction, kBest, false));
}

Request Planner::request(Direction direction, const Moment& moment, bool spares_sms) const {
  return {.direction = direction,
          .paths = moment.paths,
          .is_cold = moment.is_cold,
          .kernels_blocked = moment.kernels_blocked,
          .movers = movers_for(moment, spares_sms),
          .asked_threshold_bytes = asked_threshold_bytes_,
          .asked_slice_bytes = asked_slice_bytes_};
}

// Copy engines are given slices while a copy is under way, and must still be allowed to then: what
// a pool gave goes by kernels, which are all enqueued by the time that the program can free it.
// Copies that are to spare the SMs go by copy engines, however fast kernels are.
MoverSet Planner::movers_for(const Moment& moment, bool spares_sms) const {
  if (spares_sms) return {.kernel = false, .copy_engine = has_copy_engine_ && !moment.is_pooled};
  if (moment.is_pooled) return {.kernel = true, .copy_engine = false};
  return allowed_movers(mover_, has_copy_engine_);
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
  Request asked = request(batch.direction, moment, batch.spares_sms);
  asked.size_bytes = size_bytes;
  asked.segments = batch.segments.size();
  return multipath::plan(costs_, asked);
}

}  // namespace braid::multipath
