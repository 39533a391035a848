#include "simulation/fair_share.h"

#include <algorithm>
#include <limits>

namespace braid::simulation {
namespace {

constexpr double kUnlimited = std::numeric_limits<double>::infinity();
// Rates within this factor of the level count as having reached it: the divisions round.
constexpr double kSlack = 1.0 + 1e-12;

void prepare(FairShareRoom& room, std::span<const double> capacities,
             std::span<const ShareClass> classes, std::span<double> rates) {
  room.left.assign(capacities.begin(), capacities.end());
  room.growing_weight.assign(capacities.size(), 0);
  room.growing.clear();
  for (size_t c = 0; c < classes.size(); ++c) {
    rates[c] = 0;
    if (classes[c].flows == 0) continue;
    room.growing.push_back(c);
    const double weight = classes[c].weight * classes[c].flows;
    for (int r : classes[c].resources) room.growing_weight[r] += weight;
  }
}

// The rate of a flow of weight 1 at which this class, by itself or by one of its resources, must
// stop.
double limit_of(const FairShareRoom& room, std::span<const double> capacities,
                const ShareClass& share_class) {
  double limit = share_class.cap > 0 ? share_class.cap / share_class.weight : kUnlimited;
  for (int r : share_class.resources)
    if (capacities[r] > 0)
      limit = std::min(limit, std::max(0.0, room.left[r]) / room.growing_weight[r]);
  return limit;
}

}  // namespace

void fair_share(std::span<const double> capacities, std::span<const ShareClass> classes,
                std::span<double> rates, FairShareRoom& room) {
  std::vector<double>& limits = room.limits;
  prepare(room, capacities, classes, rates);
  while (!room.growing.empty()) {
    limits.clear();
    double level = kUnlimited;
    for (size_t c : room.growing) {
      limits.push_back(limit_of(room, capacities, classes[c]));
      level = std::min(level, limits.back());
    }
    // Everybody who is limited at this level stops here; the others keep growing.
    size_t kept = 0;
    for (size_t i = 0; i < room.growing.size(); ++i) {
      const size_t c = room.growing[i];
      if (limits[i] > level * kSlack) {
        room.growing[kept++] = c;
        continue;
      }
      const double weight = classes[c].weight * classes[c].flows;
      rates[c] = level * classes[c].weight;
      for (int r : classes[c].resources) {
        room.left[r] -= level * weight;
        room.growing_weight[r] -= weight;
      }
    }
    room.growing.resize(kept);
  }
}

}  // namespace braid::simulation
