#include "tools/fit.h"

#include <algorithm>
#include <cmath>

#include "multipath/copy_split.h"
#include "multipath/cost_file.h"

namespace braid::tools {
namespace {

using multipath::DirectionCosts;
using multipath::kernel_late_us;
using multipath::Mover;

constexpr uint64_t kSmall = 1 << 20;   // the start is most of it
constexpr uint64_t kMiddle = 8 << 20;  // relays take part, and their beginnings matter
constexpr uint64_t kLarge = 64 << 20;  // the rate is nearly all of it
constexpr uint64_t kBatch = 16 << 20;
constexpr uint64_t kSmallEntry = 8 << 10;  // smaller ones gain nothing
constexpr uint64_t kLargeEntry = 64 << 10;
constexpr uint64_t kUsualBuffer = 8 << 20;  // that a relay stages through (relay.h)

// With more paths the ceiling would hide when each of them begins.
constexpr int kPathsWithoutCeiling = 4;

// Files for people: more digits would be noise. Below zero is noise too.
double rounded(double value) { return std::max(0.0, std::round(value * 10) / 10); }
// Of one of thousands of segments.
double rounded_entry(double value) { return std::max(0.0, std::round(value * 1000) / 1000); }

// In bytes a microsecond; the file takes none that is less.
double rate_of(double bytes, double us) {
  return std::max(multipath::kLeastRate, rounded(bytes / std::max(us, 1.0)));
}

struct Line {
  double start_us;
  double bytes_per_us;
};

// The straight line through two times. Where noise has them in the wrong order, all is rate.
Line line_through(double small_us, double large_us) {
  const double slope_us = large_us - small_us;
  const double rate = slope_us > 0 ? rate_of(kLarge - kSmall, slope_us) : rate_of(kLarge, large_us);
  return {rounded(small_us - kSmall / rate), rate};
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
  const double all_us = time_us({Mover::kKernel, kLargestSampleBytes, gpus}) - line.start_us;
  costs.kernel_ceiling_bytes_per_us = rate_of(kLargestSampleBytes, all_us);
  // A few paths and few bytes: what is left beside start and bytes is that path k begins k launches
  // late, (n - 1) / 2 launches on average.
  const int paths = std::min(gpus, kPathsWithoutCeiling);
  const double warm_us = time_us({Mover::kKernel, kMiddle, paths});
  const double together =
      std::min(paths * costs.kernel_bytes_per_us, costs.kernel_ceiling_bytes_per_us);
  const double late_us = warm_us - line.start_us - kMiddle / together;
  costs.kernel_launch_us = rounded(2 * late_us / (paths - 1));
  // Now that this is known, it no longer counts against the ceiling.
  costs.kernel_ceiling_bytes_per_us =
      rate_of(kLargestSampleBytes,
              all_us - kernel_late_us(costs, costs.kernel_ceiling_bytes_per_us, gpus, 0));
  // The same cold: all but the direct path begin later by as much, and their clocks have fallen.
  const double cold_us = time_us({Mover::kKernel, kMiddle, paths, true});
  costs.kernel_cold_us = rounded((cold_us - warm_us) * paths / (paths - 1));
  const double cold_all_us =
      time_us({Mover::kKernel, kLargestSampleBytes, gpus, true}) - line.start_us;
  const double cold_rate = rate_of(
      kLargestSampleBytes, cold_all_us - kernel_late_us(costs, costs.kernel_ceiling_bytes_per_us,
                                                        gpus, costs.kernel_cold_us));
  costs.kernel_cold_ceiling_bytes_per_us = std::min(costs.kernel_ceiling_bytes_per_us, cold_rate);
}

// Beside start and bytes, for each entry.
double native_entry_us(const Sampler& time_us, const DirectionCosts& costs, uint64_t entry_bytes) {
  const double batch_us = time_us({Mover::kNative, kBatch, 1, false, entry_bytes});
  const double bytes_us = costs.native_start_us + kBatch / costs.native_bytes_per_us;
  return rounded_entry((batch_us - bytes_us) / (kBatch / entry_bytes));
}

// Drivers copy small entries in some slower way: up to which size?
void fit_native_batch(const Sampler& time_us, int, DirectionCosts& costs) {
  costs.native_entry_us = native_entry_us(time_us, costs, kLargeEntry);
  costs.native_small_entry_us = native_entry_us(time_us, costs, kSmallEntry);
  costs.native_small_entry_bytes = kSmallEntry;
  for (uint64_t bytes = 2 * kSmallEntry; bytes < kLargeEntry; bytes *= 2) {
    const double entry_us = native_entry_us(time_us, costs, bytes);
    if (std::abs(entry_us - costs.native_small_entry_us) >=
        std::abs(entry_us - costs.native_entry_us))
      break;
    costs.native_small_entry_bytes = static_cast<double>(bytes);
  }
}

// The same bytes in more segments: all else is equal.
void fit_kernel_batch(const Sampler& time_us, int gpus, DirectionCosts& costs) {
  const int paths = std::min(gpus, kPathsWithoutCeiling);
  const double many_us = time_us({Mover::kKernel, kBatch, paths, false, kSmallEntry});
  const double few_us = time_us({Mover::kKernel, kBatch, paths, false, kLargeEntry});
  constexpr double kMore = kBatch / kSmallEntry - kBatch / kLargeEntry;
  costs.kernel_segment_us = rounded_entry((many_us - few_us) * paths / kMore);
}

// Of plain memory, which relays stage: the bench's. What mapped memory takes less stays as it was.
void fit_engine(const Sampler& time_us, int gpus, DirectionCosts& costs) {
  costs.engine_bytes_per_us = costs.native_bytes_per_us;
  // For now there is none, so that a plan says when paths begin and nothing else.
  costs.engine_ceiling_bytes_per_us = gpus * costs.engine_bytes_per_us;
  const auto planned_us = [&](uint64_t size_bytes, int paths) {
    return split_copy(costs,
                      {.size_bytes = size_bytes, .paths = paths, .buffer_bytes = kUsualBuffer})
        .expected_us;
  };
  // Two paths come near no ceiling: what the copy takes beyond a plan whose relay begins at once,
  // the relay is late, and each path carries half of that.
  costs.engine_staged_start_us = 0;
  const double late_us = time_us({Mover::kCopyEngine, kMiddle, 2}) - planned_us(kMiddle, 2);
  costs.engine_staged_start_us = rounded(2 * late_us);
  costs.engine_start_us = std::min(costs.engine_start_us, costs.engine_staged_start_us);
  // All paths and many bytes: the ceiling, beside what they begin late on average.
  const double begin_us = planned_us(kLargestSampleBytes, gpus) -
                          kLargestSampleBytes / costs.engine_ceiling_bytes_per_us;
  costs.engine_ceiling_bytes_per_us = rate_of(
      kLargestSampleBytes, time_us({Mover::kCopyEngine, kLargestSampleBytes, gpus}) - begin_us);
}

constexpr Fit kFits[] = {{Mover::kNative, false, fit_native},
                         {Mover::kNative, true, fit_native_batch},
                         {Mover::kKernel, false, fit_kernel},
                         {Mover::kKernel, true, fit_kernel_batch},
                         {Mover::kCopyEngine, false, fit_engine}};

}  // namespace

std::span<const Fit> fits() { return kFits; }

}  // namespace braid::tools
