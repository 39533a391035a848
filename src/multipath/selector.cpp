#include "multipath/selector.h"

#include <algorithm>

namespace braid::multipath {
namespace {

// Bytes a microsecond that one path carries (51.4 GB/s), and the time to launch one more: measured
// on 4xH200, see docs/measurements. Rough is enough: they only keep paths off transfers that would
// be over before the path begins.
constexpr double kPathBytesPerUs = 51.4e3;
constexpr double kPathLaunchUs = 4.5;

constexpr uint64_t kMaxSlices = uint64_t{1} << 24;

}  // namespace

uint32_t slice_bytes_for(uint64_t size_bytes, uint64_t asked_bytes) {
  const uint64_t wanted =
      asked_bytes != 0 ? (asked_bytes + 15) & ~uint64_t{15} : kDefaultSliceBytes;
  const uint64_t needed = (size_bytes / kMaxSlices + 15) & ~uint64_t{15};
  return static_cast<uint32_t>(std::clamp<uint64_t>(std::max(wanted, needed), 16, 1u << 30));
}

int path_count_for(uint64_t size_bytes, int available) {
  // With n paths that start kPathLaunchUs apart, all ending together at t:
  // sum over k < n of (t - k * launch) * bandwidth = size.
  int paths = 1;
  double sum_of_starts_us = 0;
  while (paths < available) {
    const double end_us =
        (static_cast<double>(size_bytes) / kPathBytesPerUs + sum_of_starts_us) / paths;
    const double start_us = paths * kPathLaunchUs;
    if (start_us >= end_us) break;
    sum_of_starts_us += start_us;
    ++paths;
  }
  return paths;
}

}  // namespace braid::multipath
