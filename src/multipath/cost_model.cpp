#include "multipath/cost_model.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "multipath/batch_split.h"
#include "multipath/copy_split.h"

namespace braid::multipath {
namespace {

// Thresholds are sought from here down, to the nearest step.
constexpr uint64_t kLargestThreshold = uint64_t{1} << 30;
constexpr uint64_t kThresholdStep = 64 << 10;

// A channel's buffer, where the plan is not asked about a certain relay (relay.h).
constexpr uint64_t kUsualBufferBytes = 16 << 20;

bool has_small_segments(const DirectionCosts& costs, const PlanRequest& request) {
  return static_cast<double>(request.size_bytes) <=
         static_cast<double>(request.segments) * costs.native_small_entry_bytes;
}

double native_us(const DirectionCosts& costs, const PlanRequest& request) {
  const auto bytes = static_cast<double>(request.size_bytes);
  const double time_us = costs.native_start_us + bytes / costs.native_bytes_per_us;
  if (request.segments <= 1) return time_us;
  const double entry_us =
      has_small_segments(costs, request) ? costs.native_small_entry_us : costs.native_entry_us;
  return time_us + static_cast<double>(request.segments) * entry_us;
}

double sparing_us(const DirectionCosts& costs, const PlanRequest& request, int& paths) {
  const BatchSplit split = split_batch(costs, {.size_bytes = request.size_bytes,
                                               .segments = request.segments,
                                               .relays = request.paths - 1,
                                               .native_us = native_us(costs, request),
                                               .is_cold = request.is_cold});
  paths = 1 + split.relays;
  return split.expected_us;
}

// Paths that begin one after the other and end together at t carry
//   sum over k < n of (t - begin_k) = work.
// One more takes part if it begins before the others would have ended.
double kernel_us(const DirectionCosts& costs, const PlanRequest& request, int& paths) {
  const auto bytes = static_cast<double>(request.size_bytes);
  double work_us = bytes / costs.kernel_bytes_per_us;
  if (request.segments > 1)
    work_us += static_cast<double>(request.segments) * costs.kernel_segment_us;
  const double cold_us = request.is_cold ? costs.kernel_cold_us : 0;
  double begins_us = costs.kernel_start_us;
  double end_us = begins_us + work_us;
  for (paths = 1; paths < request.paths; ++paths) {
    const double begin_us = costs.kernel_start_us + paths * costs.kernel_launch_us + cold_us;
    if (begin_us >= end_us) break;
    begins_us += begin_us;
    end_us = (work_us + begins_us) / (paths + 1);
  }
  // Paths beyond the ceiling are taken all the same: which of them is slow is not known before.
  const double ceiling = request.is_cold ? std::min(costs.kernel_ceiling_bytes_per_us,
                                                    costs.kernel_cold_ceiling_bytes_per_us)
                                         : costs.kernel_ceiling_bytes_per_us;
  const double late_us = kernel_late_us(costs, ceiling, paths, cold_us);
  return std::max(end_us, costs.kernel_start_us + late_us + bytes / ceiling);
}

double engine_us(const DirectionCosts& costs, const PlanRequest& request, int& paths) {
  const CopySplit plan = split_copy(costs, {.size_bytes = request.size_bytes,
                                            .paths = request.paths,
                                            .far_relays = request.far_relays,
                                            .is_staged = request.is_staged,
                                            .buffer_bytes = kUsualBufferBytes});
  paths = 1 + static_cast<int>(std::count_if(plan.relay_bytes.begin(), plan.relay_bytes.end(),
                                             [](uint64_t bytes) { return bytes != 0; }));
  return plan.expected_us;
}

double& time_of(Mover mover, Forecast& forecast) {
  return forecast.expected_us[static_cast<size_t>(mover)];
}

// What a mover may take at most, to be taken at all.
double worthwhile_us(const PlanRequest& request, const Forecast& forecast) {
  if (request.asked_threshold_bytes != 0) return std::numeric_limits<double>::infinity();
  return kWorthwhile * forecast.expected_us[static_cast<size_t>(Mover::kNative)];
}

bool is_blocked(const PlanRequest& request) {
  return request.kernels_blocked && request.mover == Mover::kKernel;
}

Reason reason_for(const PlanRequest& request) {
  return request.asked_threshold_bytes != 0 ? Reason::kAsked : Reason::kFaster;
}

Verdict verdict_against(const CostModel& costs, PlanRequest request) {
  if (is_blocked(request)) return Verdict::kBlocked;
  if (!request.is_cold) return Verdict::kNoGain;
  request.is_cold = false;
  return plan(costs, request).mover == Mover::kNative ? Verdict::kNoGain : Verdict::kCold;
}

}  // namespace

double expected_us(const CostModel& costs, Mover mover, const PlanRequest& request, int& paths) {
  const DirectionCosts& direction = costs.of(request.direction);
  paths = 1;
  switch (mover) {
    case Mover::kKernel:
      return request.spares_target ? sparing_us(direction, request, paths)
                                   : kernel_us(direction, request, paths);
    case Mover::kCopyEngine: return engine_us(direction, request, paths);
    case Mover::kNative: break;
  }
  return native_us(direction, request);
}

Plan plan(const CostModel& costs, const PlanRequest& request) {
  Plan chosen;
  chosen.forecast.paths = request.paths;
  time_of(Mover::kNative, chosen.forecast) = native_us(costs.of(request.direction), request);
  if (request.size_bytes < request.asked_threshold_bytes) {
    chosen.verdict = Verdict::kBelowThreshold;
    return chosen;
  }
  if (request.mover != Mover::kNative && !is_blocked(request)) {
    chosen.mover = request.mover;
    time_of(chosen.mover, chosen.forecast) =
        expected_us(costs, chosen.mover, request, chosen.paths);
    if (chosen.expected_us() <= worthwhile_us(request, chosen.forecast)) {
      chosen.verdict = Verdict::kAccelerated;
      chosen.forecast.reason = reason_for(request);
      return chosen;
    }
  }
  chosen.mover = Mover::kNative;
  chosen.paths = 1;
  chosen.verdict = verdict_against(costs, request);
  return chosen;
}

double kernel_late_us(const DirectionCosts& costs, double ceiling_bytes_per_us, int paths,
                      double cold_us) {
  const double filling =
      std::clamp(ceiling_bytes_per_us / costs.kernel_bytes_per_us, 1.0, static_cast<double>(paths));
  return costs.kernel_launch_us * (filling - 1) / 2 + cold_us * (filling - 1) / filling;
}

uint64_t threshold_bytes(const CostModel& costs, const PlanRequest& request) {
  if (request.asked_threshold_bytes != 0) return request.asked_threshold_bytes;
  PlanRequest probe{.direction = request.direction,
                    .paths = request.paths,
                    .far_relays = request.far_relays,
                    .is_staged = request.is_staged,
                    .mover = request.mover};
  const auto pays = [&](uint64_t size_bytes) {
    probe.size_bytes = size_bytes;
    return plan(costs, probe).mover != Mover::kNative;
  };
  if (!pays(kLargestThreshold)) return UINT64_MAX;
  // What a mover gains grows with the size, so there is one size to find.
  uint64_t native = 0;
  uint64_t pays_from = kLargestThreshold;
  while (pays_from - native > kThresholdStep) {
    const uint64_t middle = (native + pays_from) / 2 / kThresholdStep * kThresholdStep;
    if (pays(middle))
      pays_from = middle;
    else
      native = middle;
  }
  return pays_from;
}

}  // namespace braid::multipath
