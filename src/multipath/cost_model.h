// The costs of copies on a server, and the choice of mover and number of paths that follows from
// them. Pure: no driver, no clock, no state; it allocates nothing.
//
// The goal is that no copy is slower than it would be natively: a way other than the native copy
// must be expected to take at most kWorthwhile of the native copy's time. The formulas are straight
// lines, so that `braid tune` can find each parameter from two measurements:
//
//   native       start + bytes / rate + entries of a batch x entry
//   kernel       work = bytes / rate + segments x segment, in microseconds of one path; path k
//                begins at start + k x launch (later if the relays are cold); all end together. If
//                no kernel runs on the target (batch_split.h), its own link carries its part at the
//                native copy's rate
//   copy engines (copy_split.h) work = bytes / rate; the direct path begins as the native copy,
//                relay k at start + (k - 1) x issue, and if it stages, its last chunk's way over
//                NVLink later; all end together
//
// Both movers' bytes cannot pass faster than the ceiling. Source: MMA sections 3.2 (fallback) and
// 3.4.1 (how many paths); the figures are this project's. Threads: any.
#pragma once

#include <cstdint>

#include "multipath/costs.h"
#include "multipath/transfer.h"

namespace braid::multipath {

/// Relays that have carried nothing for this long are cold. The record saw it after pauses of
/// 100 ms (docs/measurements); how early it begins is not known, so the limit is far below.
inline constexpr uint64_t kColdAfterNs = 10'000'000;

/// Part of the native copy's time that another way may take. A program whose caches are cold, since
/// it worked on something else between two copies, spends twice the time on submitting: with 0.9,
/// copies of 4 MiB over 2 paths reached 0.78 of native (2xH200).
inline constexpr double kWorthwhile = 0.75;

struct PlanRequest {
  Direction direction = Direction::kHostToDevice;
  uint64_t size_bytes = 0;
  uint64_t segments = 1;  ///< 1: a linear copy
  int paths = 1;          ///< available, the direct one included
  int far_relays = 0;     ///< how many of the last relays are on another socket than the target
  bool is_cold = false;   ///< no copy was requested for kColdAfterNs
  bool kernels_blocked =
      false;              ///< a kernel does not begin in its turn: the program holds every SM
  bool is_staged = true;  ///< copy engines reach the memory through buffers only (copy_split.h)
  bool spares_target = false;  ///< no kernel on the target: the driver carries its own link's share
  Mover mover = Mover::kKernel;        ///< the mover that may carry it; kNative: none
  uint64_t asked_threshold_bytes = 0;  ///< the user's threshold, see plan(); 0: none
};

struct Plan {
  Mover mover = Mover::kNative;
  int paths = 1;
  Verdict verdict = Verdict::kNoGain;  ///< kAccelerated; else kBelowThreshold, kNoGain, kCold, or
                                       ///< kBlocked
  Forecast forecast;
  double expected_us() const { return forecast.expected_us[static_cast<size_t>(mover)]; }
};

/// The request's mover, if it is worthwhile. If the user has set a threshold, smaller copies are
/// native and all others are not: the model then only chooses the number of paths.
Plan plan(const CostModel& costs, const PlanRequest& request);

/// The expected time of `mover` over at most `request.paths` paths. `paths` is the number that take
/// part: those that find bytes left by the time they begin.
double expected_us(const CostModel& costs, Mover mover, const PlanRequest& request, int& paths);

/// The delay of bytes at the ceiling rate: paths begin one after the other until enough of them
/// fill it.
double kernel_late_us(const DirectionCosts& costs, double ceiling_bytes_per_us, int paths,
                      double cold_us);

/// The smallest linear copy that plan() would not leave native, with warm relays. Smaller copies
/// are spared everything else by one comparison. UINT64_MAX: none. Uses `request`'s direction,
/// paths, mover, staging and user's threshold.
uint64_t threshold_bytes(const CostModel& costs, const PlanRequest& request);

}  // namespace braid::multipath
