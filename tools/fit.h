// From timed copies to the parameters of the cost model: which measurements give which parameter.
// Pure, apart from the copies that it asks for. docs/tuning.md has the formulas in words.
#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "multipath/cost_model.h"

namespace braid::tools {

/// Copies to be timed: all of one kind, in one direction.
struct Sample {
  multipath::Mover mover = multipath::Mover::kNative;
  uint64_t size_bytes = 0;
  int paths = 1;               ///< as many as this take part
  bool is_cold = false;        ///< the first after a pause; else those that follow one another
  uint64_t segment_bytes = 0;  ///< not 0: batches of segments of this size
};

/// The largest that a fit asks for.
inline constexpr uint64_t kLargestSampleBytes = 256 << 20;

/// Microseconds that a sample takes: the median, or the slowest when cold. After a failure,
/// anything.
using Sampler = std::function<double(const Sample&)>;

/// Finds parameters of one mover, or of the native copy. What it does not measure it leaves as it
/// is. In this order: a fit may need what those before it have found.
struct Fit {
  multipath::Mover mover;
  bool is_of_batches;  ///< which not every driver has
  void (*run)(const Sampler& time_us, int gpus, multipath::DirectionCosts& costs);
};

/// Every mover that can be measured, the native copy first.
std::span<const Fit> fits();

}  // namespace braid::tools
