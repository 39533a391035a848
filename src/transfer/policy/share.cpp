#include "transfer/policy/share.h"

#include <algorithm>
#include <limits>
#include <numeric>

namespace braid::transfer {

std::vector<double> max_min(double capacity, std::span<const double> demands) {
  std::vector<size_t> order(demands.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return demands[a] < demands[b]; });
  std::vector<double> parts(demands.size(), 0);
  double left = capacity;
  size_t waiting = demands.size();
  for (const size_t i : order) {
    parts[i] = std::min(demands[i], left / static_cast<double>(waiting--));
    left -= parts[i];
  }
  return parts;
}

double share_of(std::span<const ShareRow> rows, size_t mine, double capacity_gbps, uint64_t now_ns,
                const ShareRules& rules) {
  std::vector<double> demands;
  size_t at = 0;
  for (size_t i = 0; i < rows.size(); ++i) {
    const ShareRow& row = rows[i];
    const bool is_dead =
        row.process == 0 || (row.beat_ns < now_ns && now_ns - row.beat_ns > rules.dead_after_ns);
    if (i == mine)
      at = demands.size();
    else if (is_dead)
      continue;
    // This process may want any amount next, so its own demand is taken as unlimited.
    demands.push_back(i == mine || row.has_backlog ? std::numeric_limits<double>::infinity()
                                                   : row.rate_gbps * rules.headroom);
  }
  return std::clamp(max_min(capacity_gbps, demands)[at] / capacity_gbps, rules.least, 1.0);
}

}  // namespace braid::transfer
