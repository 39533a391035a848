#include "multipath/batch_split.h"

#include <algorithm>

#include "multipath/costs.h"

namespace braid::multipath {
namespace {

// A larger segment may be cut, at multiples of the grain. The two parts of one that is cut cost a
// call of the driver more.
constexpr uint64_t kLargestWholeBytes = 256 << 10;
constexpr uint64_t kGrainBytes = 64 << 10;

// What the whole batch would take over the own link, and over one relay's. All share the ceiling.
struct Work {
  double own_us = 1;
  double relay_us = 1;
};

Work work_of(const DirectionCosts& costs, const BatchSplitRequest& request) {
  const auto bytes = static_cast<double>(request.size_bytes);
  const Work alone{request.native_us - costs.native_start_us,
                   bytes / costs.kernel_bytes_per_us +
                       static_cast<double>(request.segments) * costs.kernel_segment_us};
  const double ceiling = request.is_cold ? std::min(costs.kernel_ceiling_bytes_per_us,
                                                    costs.kernel_cold_ceiling_bytes_per_us)
                                         : costs.kernel_ceiling_bytes_per_us;
  const double together = bytes / alone.own_us + request.relays * bytes / alone.relay_us;
  const double slower = std::max(1.0, together / ceiling);
  return {alone.own_us * slower, alone.relay_us * slower};
}

}  // namespace

// The relays' kernels are launched first, then the driver's batch. All end together at t, when
//   (t - own begin) / own work + sum over relays of (t - begin) / relay work = 1.
BatchSplit split_batch(const DirectionCosts& costs, const BatchSplitRequest& request) {
  const Work work = work_of(costs, request);
  const double own_begin_us = costs.native_start_us + request.relays * costs.kernel_launch_us;
  const double cold_us = request.is_cold ? costs.kernel_cold_us : 0;
  BatchSplit split;
  double pace = 1 / work.own_us;  // parts of the batch a microsecond, of all that take part so far
  double begun = own_begin_us / work.own_us;  // what they would have carried before they began
  split.expected_us = (1 + begun) / pace;
  for (; split.relays < request.relays; ++split.relays) {
    const double begin_us = costs.kernel_start_us + split.relays * costs.kernel_launch_us + cold_us;
    if (begin_us >= split.expected_us) break;
    pace += 1 / work.relay_us;
    begun += begin_us / work.relay_us;
    split.expected_us = (1 + begun) / pace;
  }
  const double own = std::clamp((split.expected_us - own_begin_us) / work.own_us, 0.0, 1.0);
  split.own_bytes = split.relays == 0
                        ? request.size_bytes
                        : static_cast<uint64_t>(own * static_cast<double>(request.size_bytes));
  return split;
}

uint64_t cut_near(std::span<const Segment> segments, uint64_t wanted_bytes) {
  uint64_t before_bytes = 0;
  for (const Segment& segment : segments) {
    const uint64_t inside_bytes = wanted_bytes - before_bytes;
    if (inside_bytes < segment.size_bytes) {
      if (segment.size_bytes > kLargestWholeBytes)
        return before_bytes + inside_bytes / kGrainBytes * kGrainBytes;
      return inside_bytes < segment.size_bytes / 2 ? before_bytes
                                                   : before_bytes + segment.size_bytes;
    }
    before_bytes += segment.size_bytes;
  }
  return before_bytes;
}

}  // namespace braid::multipath
