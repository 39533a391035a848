#include "multipath/copy_engine/pace.h"

#include <algorithm>

namespace braid::multipath::copy_engine {
namespace {
// Part of a link's time that gaps may take: of the last slices, of most, and of a link that nobody
// helps, whose slices need not be small for others' sake.
constexpr double kGapOfShortest = 0.2;
constexpr double kGapOfMost = 0.05;
constexpr double kGapAlone = 0.01;

// Slices left for each further link when they begin to shrink: the last ones end together although
// links differ in speed.
constexpr double kSlicesPerLink = 4;

constexpr uint64_t kGrain = 64 << 10;

// The thread looks every 10 us (mover.cpp), and sees a word 4 us after it was written.
constexpr double kSeenAfterUs = 14;
// A hop over NVLink takes a fifth of the time on the PCIe link, or less.
constexpr double kHopShare = 0.2;

}  // namespace

PaceCosts pace_costs(const CostModel& model) {
  PaceCosts costs;
  for (const Direction direction : {Direction::kHostToDevice, Direction::kDeviceToHost}) {
    const DirectionCosts& from = model.of(direction);
    costs[static_cast<size_t>(direction)] = {from.engine_bytes_per_us, from.engine_slice_gap_us,
                                             from.native_entry_us, from.kernel_launch_us};
  }
  return costs;
}

Pace::Pace(const PaceCosts& costs, uint64_t asked_bytes, uint64_t buffer_bytes)
    : costs_(costs), asked_bytes_(asked_bytes), buffer_bytes_(buffer_bytes) {}

double Pace::us_per_byte(const Remainder& rest) const {
  const SliceCosts& costs = of(rest.direction);
  const double entry_us =
      rest.piece_bytes == 0 ? 0 : costs.entry_us / static_cast<double>(rest.piece_bytes);
  return 1 / costs.bytes_per_us + entry_us;
}

// What the thread spends on giving each link one slice: a relayed one makes two hops.
double Pace::round_us(const Remainder& rest) const {
  return (2 * rest.links - 1 + rest.busy_links) * of(rest.direction).issue_us;
}

uint64_t Pace::slice_bytes(const Remainder& rest) const {
  const double per_byte_us = us_per_byte(rest);
  const double gap_us = of(rest.direction).gap_us;
  const double fair_us =
      static_cast<double>(rest.left_bytes) * per_byte_us / (1 + (rest.links - 1) * kSlicesPerLink);
  const double longest_us =
      std::max(gap_us / (rest.links == 1 ? kGapAlone : kGapOfMost), round_us(rest));
  const double shortest_us = std::min(gap_us / kGapOfShortest, longest_us);
  const double wanted_us = std::clamp(fair_us, shortest_us, longest_us);
  uint64_t bytes = static_cast<uint64_t>(wanted_us / per_byte_us) & ~(kGrain - 1);
  if (asked_bytes_ != 0) bytes = asked_bytes_;
  if (!rest.is_direct) bytes = std::min(bytes, buffer_bytes_);
  return std::max(bytes, kGrain);
}

double Pace::link_us(const Remainder& rest, uint64_t slice_bytes) const {
  return of(rest.direction).gap_us + static_cast<double>(slice_bytes) * us_per_byte(rest);
}

double Pace::lead_us(const Remainder& rest, uint64_t slice_bytes) const {
  const double lead_us = kSeenAfterUs + round_us(rest);
  if (rest.is_direct || rest.direction == Direction::kHostToDevice) return lead_us;
  return lead_us + kSeenAfterUs + link_us(rest, slice_bytes) * kHopShare;
}

}  // namespace braid::multipath::copy_engine
