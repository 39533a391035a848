#include "tools/fit.h"

#include <algorithm>
#include <cmath>

namespace braid::tools {
namespace {

using multipath::DirectionCosts;
using multipath::Mover;

constexpr uint64_t kSmall = 1 << 20;   // the start is most of it
constexpr uint64_t kMiddle = 8 << 20;  // relays take part, and their beginnings matter
constexpr uint64_t kLarge = 64 << 20;  // the rate is nearly all of it

// With more paths the ceiling would hide when each of them begins.
constexpr int kPathsWithoutCeiling = 4;

// Files for people: more digits would be noise.
double rounded(double value) { return std::round(value * 10) / 10; }

struct Line {
  double start_us;
  double bytes_per_us;
};

// The straight line through two times. Where noise has them in the wrong order, all is rate.
Line line_through(double small_us, double large_us) {
  const double slope_us = large_us - small_us;
  const double rate = slope_us > 0 ? (kLarge - kSmall) / slope_us : kLarge / large_us;
  return {rounded(std::max(0.0, small_us - kSmall / rate)), rounded(std::max(0.1, rate))};
}

void fit_native(const Sampler& time_us, int, DirectionCosts& costs) {
  const Line line =
      line_through(time_us({Mover::kNative, kSmall, 1}), time_us({Mover::kNative, kLarge, 1}));
  costs.native_start_us = line.start_us;
  costs.native_bytes_per_us = line.bytes_per_us;
}

void fit_kernel(const Sampler& time_us, int gpus, DirectionCosts& costs) {
  // One path: start and rate.
  const Line line =
      line_through(time_us({Mover::kKernel, kSmall, 1}), time_us({Mover::kKernel, kLarge, 1}));
  costs.kernel_start_us = line.start_us;
  costs.kernel_bytes_per_us = line.bytes_per_us;
  // All paths and many bytes: the ceiling.
  const double all_us = time_us({Mover::kKernel, kLargestSampleBytes, gpus});
  costs.kernel_ceiling_bytes_per_us =
      rounded(kLargestSampleBytes / std::max(all_us - line.start_us, 1.0));
  // A few paths and few bytes: what is left beside start and bytes is that path k begins k launches
  // late, (n - 1) / 2 launches on average.
  const int paths = std::min(gpus, kPathsWithoutCeiling);
  const double warm_us = time_us({Mover::kKernel, kMiddle, paths});
  const double together =
      std::min(paths * costs.kernel_bytes_per_us, costs.kernel_ceiling_bytes_per_us);
  const double late_us = warm_us - line.start_us - kMiddle / together;
  costs.kernel_launch_us = rounded(std::max(0.0, 2 * late_us / (paths - 1)));
  // The same cold: all but the direct path begin later by as much.
  const double cold_us = time_us({Mover::kKernel, kMiddle, paths, true});
  costs.kernel_cold_us = rounded(std::max(0.0, (cold_us - warm_us) * paths / (paths - 1)));
}

constexpr Fit kFits[] = {{Mover::kNative, fit_native}, {Mover::kKernel, fit_kernel}};

}  // namespace

std::span<const Fit> fits() { return kFits; }

}  // namespace braid::tools
