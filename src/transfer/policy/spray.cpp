#include "transfer/policy/spray.h"

#include <algorithm>
#include <limits>

#include "transfer/policy/tiers.h"

namespace braid::transfer {

double horizon_ns(const SliceView& slice, std::span<const WayView> ways) {
  double rate = 0, bytes = static_cast<double>(slice.backlog_bytes);
  for (const WayView& way : ways) {
    if (!way.is_usable) continue;
    rate += way.rate;
    bytes += static_cast<double>(way.in_flight_bytes);
  }
  return rate > 0 ? bytes / rate : 0;
}

std::optional<size_t> spray(const SliceView& slice, std::span<const WayView> ways) {
  constexpr double kNever = std::numeric_limits<double>::infinity();
  uint8_t nearest = std::numeric_limits<uint8_t>::max();
  for (const WayView& way : ways)
    if (way.is_usable) nearest = std::min(nearest, way.tier);
  const auto cost_ns = [&](const WayView& way) {
    double ns = way.eta_ns;
    for (int step = steps_beyond(way.tier, nearest); step > 0; --step) ns *= kFartherTier;
    return ns;
  };
  double soonest_ns = kNever, best_ns = kNever;
  std::optional<size_t> best;
  for (size_t i = 0; i < ways.size(); ++i) {
    if (!ways[i].is_usable) continue;
    const double ns = cost_ns(ways[i]);
    soonest_ns = std::min(soonest_ns, ns);
    if (!ways[i].has_room || ns >= best_ns) continue;
    best_ns = ns;
    best = i;
  }
  if (!best || best_ns <= soonest_ns * kNoise) return best;
  const bool may_be_later = ways[*best].tier == nearest && best_ns <= horizon_ns(slice, ways);
  return may_be_later ? best : std::nullopt;
}

}  // namespace braid::transfer
