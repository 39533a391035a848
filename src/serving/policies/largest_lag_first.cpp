#include "serving/policies/largest_lag_first.h"

#include "serving/policies/room.h"

#include <algorithm>

namespace braid::serving {

LargestLagFirst largest_lag_first(const View& view, int64_t free_blocks, int64_t transfer_blocks,
                                  const LagParameters& parameters) {
  LargestLagFirst result;
  int64_t left = free_blocks + transfer_blocks;  // line 1: B_left
  int64_t wanted = 0;
  for (const RequestView& request : view.requests)
    if (request.state == RequestState::kWaiting || request.state == RequestState::kRotary) {
      wanted += request.blocks;
      result.prioritized.push_back(&request);
    }
  if (free_blocks >= wanted) {  // lines 3 to 5
    sort_by(result.prioritized, kByArrival);
    result.fell_back = true;
    return result;
  }
  result.prioritized.clear();
  std::vector<Ranked> ranked = lags(view, parameters);
  std::sort(ranked.begin(), ranked.end());  // line 6
  for (const Ranked& entry : ranked) {      // lines 7 to 11
    if (entry.lag_us >= 0 && entry.request->blocks <= left) {
      result.prioritized.push_back(entry.request);
      left -= entry.request->blocks;
    }
  }
  int64_t swap = transfer_blocks - left;  // line 12: B_swap
  for (auto entry = ranked.rbegin(); entry != ranked.rend() && swap > 0; ++entry) {  // 13 to 17
    if (entry->lag_us >= 0) continue;
    result.preempted.push_back(entry->request);
    swap -= entry->request->blocks;
  }
  return result;
}

}  // namespace braid::serving
