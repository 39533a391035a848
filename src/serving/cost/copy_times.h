// What copies between one GPU and its host took on a server, by size and by method: as bench/kv's
// `rotation` has measured. Inputs of the figures that the paper measured too (SuperInfer, figures
// 4, 5 and 12, table 1).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"

namespace braid::serving {

enum class Way : uint8_t { kDown, kUp, kBoth };  ///< to the host, to the GPU, both at once

/// Copies of one size, medians over turns. GB/s (10^9) of both directions together.
struct SegmentCopies {
  uint64_t segment_bytes;
  uint64_t segments;  ///< of a turn, in each direction
  Way way;
  double one_by_one_gbps;            ///< a call of cuMemcpyAsync for each segment
  double batch_gbps;                 ///< the driver's batches
  std::optional<double> braid_gbps;  ///< braid's batches, where the server has several links
  // Of one segment by cuMemcpyAsync, in one direction:
  std::optional<double> call_us, transfer_us;
};

/// A method of table 1.
struct CopyMethod {
  std::string name;  ///< "naive", "ms", "ms_mk", "duplex" or "braid"
  double down_gbps, up_gbps;
  double both_ms;  ///< until everything has gone both ways
};

struct CopyTimes {
  std::vector<SegmentCopies> segments;
  std::vector<CopyMethod> methods;
  std::string source;  ///< for people
};

/// As recorded in docs/measurements.
CopyTimes h200_copies();

/// Reads what `rotation` has printed: one JSON object a line. Errors name the file, the line and
/// the key. A measurement whose bytes were not verified is refused.
Result<CopyTimes> read_copy_times(const std::string& path);

}  // namespace braid::serving
