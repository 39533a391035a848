#include "simulation/fair_share.h"

#include <algorithm>
#include <cstddef>
#include <limits>

namespace braid::simulation {
namespace {

constexpr double kUnlimited = std::numeric_limits<double>::infinity();
// Rates within this factor of the level count as having reached it: the divisions round.
constexpr double kSlack = 1.0 + 1e-12;

// Scratch space, kept between calls: this runs once for every slice.
struct Filling {
  std::vector<double> left;            // by resource: capacity not yet given to frozen flows
  std::vector<double> growing_weight;  // by resource
  std::vector<size_t> growing;         // classes whose rate still rises
};

void prepare(Filling& filling, std::span<const double> capacities,
             std::span<const ShareClass> classes, std::span<double> rates) {
  filling.left.assign(capacities.begin(), capacities.end());
  filling.growing_weight.assign(capacities.size(), 0);
  filling.growing.clear();
  for (size_t c = 0; c < classes.size(); ++c) {
    rates[c] = 0;
    if (classes[c].flows == 0) continue;
    filling.growing.push_back(c);
    const double weight = classes[c].weight * classes[c].flows;
    for (int r : classes[c].resources) filling.growing_weight[r] += weight;
  }
}

// The rate of a flow of weight 1 at which this class, by itself or by one of its resources, must
// stop.
double limit_of(const Filling& filling, std::span<const double> capacities,
                const ShareClass& share_class) {
  double limit = share_class.cap > 0 ? share_class.cap / share_class.weight : kUnlimited;
  for (int r : share_class.resources)
    if (capacities[r] > 0)
      limit = std::min(limit, std::max(0.0, filling.left[r]) / filling.growing_weight[r]);
  return limit;
}

}  // namespace

void fair_share(std::span<const double> capacities, std::span<const ShareClass> classes,
                std::span<double> rates) {
  thread_local Filling filling;
  thread_local std::vector<double> limits;
  prepare(filling, capacities, classes, rates);
  while (!filling.growing.empty()) {
    limits.clear();
    double level = kUnlimited;
    for (size_t c : filling.growing) {
      limits.push_back(limit_of(filling, capacities, classes[c]));
      level = std::min(level, limits.back());
    }
    // Everybody who is limited at this level stops here; the others keep growing.
    size_t kept = 0;
    for (size_t i = 0; i < filling.growing.size(); ++i) {
      const size_t c = filling.growing[i];
      if (limits[i] > level * kSlack) {
        filling.growing[kept++] = c;
        continue;
      }
      const double weight = classes[c].weight * classes[c].flows;
      rates[c] = level * classes[c].weight;
      for (int r : classes[c].resources) {
        filling.left[r] -= level * weight;
        filling.growing_weight[r] -= weight;
      }
    }
    filling.growing.resize(kept);
  }
}

}  // namespace braid::simulation
