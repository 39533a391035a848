#include "multipath/copy_engine/pace.h"

#include <algorithm>
#include <cmath>

namespace braid::multipath::copy_engine {
namespace {
// Part of a link's time that gaps may take: of the last slices, of most, and of a link that nobody
// helps, whose slices need not be small for others' sake.
constexpr double kGapOfShortest = 0.2;
constexpr double kGapOfMost = 0.05;
constexpr double kGapAlone = 0.005;

// Slices left for each further link when they begin to shrink: the last ones end together although
// links differ in speed.
constexpr double kSlicesPerLink = 4;

constexpr uint64_t kGrain = 64 << 10;

// The thread looks every kStepNs, wakes up 4 us late, sees a word 4 us after it was written, and is
// late itself at times: one step in a hundred took 25 us and more on 2xH200, the longest 55. There,
// 1 GiB device to host with 20, 60 and 120 us: 104.1, 105.4 and 105.5 GB/s. What is queued so early
// cannot be overtaken by an urgent copy.
constexpr double kSeenAfterUs = 60;
constexpr double kStepUs = kStepNs * 1e-3 + 4;
// However long the gaps: an urgent copy waits for a slice.
constexpr double kLongestUs = 1000;
// A hop over NVLink takes a fifth of the time on the PCIe link, or less.
constexpr double kHopShare = 0.2;

}  // namespace

SliceCosts slice_costs(const DirectionCosts& costs) {
  return {.bytes_per_us = costs.engine_bytes_per_us,
          .gap_us = costs.engine_slice_gap_us,
          .entry_us = costs.native_entry_us};
}

PaceCosts pace_costs(const CostModel& model) {
  return {slice_costs(model.by_direction[0]), slice_costs(model.by_direction[1])};
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

Pace::Rule Pace::rule_for(const Remainder& rest) const {
  if (asked_bytes_ != 0) {
    const double asked_us = static_cast<double>(asked_bytes_) * us_per_byte(rest);
    return {asked_us, asked_us, 1};
  }
  const double gap_us = of(rest.direction).gap_us;
  Rule rule{};
  const double gaps_us = std::min(gap_us / (rest.links == 1 ? kGapAlone : kGapOfMost), kLongestUs);
  rule.longest_us = std::max({gaps_us, round_us(rest), kSeenAfterUs});
  rule.shortest_us = std::clamp(gap_us / kGapOfShortest, kStepUs, rule.longest_us);
  rule.shares = 1 + (rest.links - 1) * kSlicesPerLink;
  return rule;
}

uint64_t Pace::slice_bytes(const Remainder& rest) const {
  const double per_byte_us = us_per_byte(rest);
  const Rule rule = rule_for(rest);
  const double share_us = static_cast<double>(rest.left_bytes) * per_byte_us / rule.shares;
  const double wanted_us = std::clamp(share_us, rule.shortest_us, rule.longest_us);
  uint64_t bytes = static_cast<uint64_t>(wanted_us / per_byte_us) & ~(kGrain - 1);
  if (asked_bytes_ != 0) bytes = asked_bytes_;
  if (!rest.is_direct) bytes = std::min(bytes, buffer_bytes_);
  return std::max(bytes, kGrain);
}

// Of the longest, then of ever smaller ones, then of the shortest.
double Pace::slices(const Remainder& rest) const {
  const double per_byte_us = us_per_byte(rest);
  Rule rule = rule_for(rest);
  if (rest.links > 1)
    rule.longest_us = std::min(static_cast<double>(buffer_bytes_) * per_byte_us, rule.longest_us);
  rule.shortest_us = std::min(rule.shortest_us, rule.longest_us);
  const double left_us = static_cast<double>(std::max(rest.left_bytes, uint64_t{1})) * per_byte_us;
  if (rule.shares == 1) return std::max(1.0, left_us / rule.longest_us);
  const double shrinking_us = std::min(left_us, rule.shares * rule.longest_us);
  const double last_us = std::min(left_us, rule.shares * rule.shortest_us);
  return (left_us - shrinking_us) / rule.longest_us +
         rule.shares * std::log(shrinking_us / last_us) + std::max(1.0, last_us / rule.shortest_us);
}

double Pace::last_slice_us(const Remainder& rest) const {
  return rule_for(rest).shortest_us + of(rest.direction).gap_us;
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
