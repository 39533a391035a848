#include "multipath/copy_engine/path_totals.h"

#include <algorithm>

namespace braid::multipath::copy_engine {

void PathTotals::add(const Task& task) {
  const int target = task.target->gpu();
  for (int gpu = 0; gpu < kMaxGpus; ++gpu) {
    const Carried& carried = task.carried[gpu];
    if (carried.slices == 0) continue;
    auto at = std::find_if(counts_.begin(), counts_.end(), [&](const PathCount& known) {
      return known.target == target && known.via == gpu && known.direction == task.direction;
    });
    if (at == counts_.end())
      at = counts_.insert(at, {target, gpu, task.direction, 0, 0, Mover::kCopyEngine});
    at->slices += carried.slices;
    at->bytes += carried.bytes;
  }
}

}  // namespace braid::multipath::copy_engine
