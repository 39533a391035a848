#include "multipath/copy_split.h"

#include <algorithm>
#include <cmath>

#include "multipath/costs.h"

namespace braid::multipath {
namespace {

// Shares are cut here, so that no path ends in the middle of a page.
constexpr uint64_t kGrainBytes = 64 << 10;

// A share passes in so many chunks or more: with fewer the last one's way over NVLink shows, with
// more the calls do.
constexpr uint64_t kChunksOfShare = 4;
constexpr uint64_t kLeastChunkBytes = 1 << 20;
// A share has at most so many, or its operations would fill the relay's context (relay.h): what is
// more goes over the direct path.
constexpr uint64_t kMostChunksOfShare = 96;

// What else a share puts into a channel: a wait, a word, and two events that time it.
constexpr uint64_t kOtherOps = 4;

uint64_t chunk_for(uint64_t share_bytes, const CopySplitRequest& request) {
  if (!request.is_staged) return std::max<uint64_t>(share_bytes, 1);
  const uint64_t wanted = (share_bytes / kChunksOfShare + kGrainBytes - 1) / kGrainBytes;
  return std::clamp(wanted * kGrainBytes, std::min(kLeastChunkBytes, request.buffer_bytes),
                    request.buffer_bytes);
}

// When each path begins to move bytes, counted so that all may be taken to move at one pace.
struct Begins {
  double direct_us = 0;
  double first_relay_us = 0;
  double next_relay_us = 0;

  double of(int path) const {
    return path == 0 ? direct_us : first_relay_us + (path - 1) * next_relay_us;
  }
};

Begins begins_of(const DirectionCosts& costs, const CopySplitRequest& request) {
  const uint64_t even_share = request.size_bytes / static_cast<uint64_t>(request.paths);
  const auto chunk = static_cast<double>(chunk_for(even_share, request));
  const double hop_us = request.is_staged ? chunk / costs.engine_hop_bytes_per_us : 0;
  return {costs.native_start_us,
          (request.is_staged ? costs.engine_staged_start_us : costs.engine_start_us) + hop_us,
          costs.engine_issue_us};
}

// All paths share the ceiling of host memory, and relays of the other socket what joins the two.
struct Rates {
  double near_bytes_per_us = 1;
  double far_bytes_per_us = 1;
  int first_far = 0;

  double of(int path) const { return path < first_far ? near_bytes_per_us : far_bytes_per_us; }
};

Rates rates_of(const DirectionCosts& costs, const CopySplitRequest& request) {
  const int near_paths = request.paths - request.far_relays;
  const double near = costs.engine_bytes_per_us;
  const double far =
      std::min(near, costs.engine_far_ceiling_bytes_per_us / std::max(1, request.far_relays));
  const double together = near * near_paths + far * request.far_relays;
  const double scale = std::min(1.0, costs.engine_ceiling_bytes_per_us / together);
  return {near * scale, far * scale, near_paths};
}

}  // namespace

double path_bytes_per_us(const DirectionCosts& costs, const CopySplitRequest& request, int path) {
  return rates_of(costs, request).of(path);
}

uint32_t ops_of(uint64_t relay_bytes, uint64_t chunk_bytes, size_t channels) {
  const uint64_t chunks = chunk_bytes == 0 ? 0 : relay_bytes / chunk_bytes + 2;
  return static_cast<uint32_t>(
      std::min<uint64_t>(2 * ((chunks + channels - 1) / channels) + kOtherOps, UINT32_MAX));
}

// Paths that begin one after the other and end together at t carry
//   sum over k of (t - begin_k) x rate_k = size.
CopySplit split_copy(const DirectionCosts& costs, const CopySplitRequest& request) {
  const Begins begins = begins_of(costs, request);
  const Rates rates = rates_of(costs, request);
  double rate = rates.of(0);
  double carried_before = begins.direct_us * rate;  // what paths would have carried by begin_k
  double end_us = (static_cast<double>(request.size_bytes) + carried_before) / rate;
  int paths = 1;
  for (; paths < request.paths && begins.of(paths) < end_us; ++paths) {
    rate += rates.of(paths);
    carried_before += begins.of(paths) * rates.of(paths);
    end_us = (static_cast<double>(request.size_bytes) + carried_before) / rate;
  }
  CopySplit plan;
  plan.expected_us = end_us;
  uint64_t left_bytes = request.size_bytes;
  const uint64_t most_bytes =
      request.is_staged ? kMostChunksOfShare * request.buffer_bytes : request.size_bytes;
  for (int path = 1; path < paths; ++path) {
    const double share = std::max(0.0, (end_us - begins.of(path)) * rates.of(path));
    const auto bytes = std::min(
        {left_bytes, most_bytes, static_cast<uint64_t>(share) / kGrainBytes * kGrainBytes});
    plan.relay_bytes[static_cast<size_t>(path) - 1] = bytes;
    left_bytes -= bytes;
  }
  plan.direct_bytes = left_bytes;
  if (plan.relay_bytes[0] == most_bytes)
    plan.expected_us = begins.direct_us + static_cast<double>(left_bytes) / rates.of(0);
  plan.chunk_bytes = chunk_for(plan.relay_bytes[0], request);
  return plan;
}

}  // namespace braid::multipath
