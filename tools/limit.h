// The server's limit: what direct copies to, or from, every GPU at once reach in sum. No way of
// copying to one GPU can be faster than all links together, so this is what braid is held against.
// Measured in the same run and in turns with the copies, since a server's state is part of it.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "base/status.h"
#include "cuda/driver.h"
#include "tools/gpu_objects.h"

namespace braid::tools {

/// Which way the copies go; both: at once, on two streams of each GPU.
enum class Flow { kToDevices, kToHost, kBothWays };

/// Owns, on each GPU, memory and a stream for each direction that has been measured. Its size does
/// not depend on the copies that are held against it: a run of small copies has the same limit.
class Limit {
 public:
  /// `contexts`: one of each GPU. They and `driver` must outlive it.
  static Result<std::unique_ptr<Limit>> open(const cuda::Driver& driver,
                                             std::vector<CUcontext> contexts);
  Limit(const Limit&) = delete;
  Limit& operator=(const Limit&) = delete;

  /// GB/s of all GPUs together, and of both ways; by events. The first time, it allocates and
  /// copies once more to warm up.
  Result<double> measure(Flow flow);

 private:
  /// One direction of one GPU.
  struct Lane {
    CUcontext context = nullptr;
    multipath::Batch part;
    CUevent end = nullptr;
  };

  Limit(const cuda::Driver& driver, std::vector<CUcontext> contexts)
      : driver_(driver), contexts_(std::move(contexts)), objects_(driver) {}
  Status open_lanes(multipath::Direction direction);
  CUresult enqueue(const Lane& lane);
  Result<double> measure_once(Flow flow);

  const cuda::Driver& driver_;
  const std::vector<CUcontext> contexts_;
  GpuObjects objects_;
  std::vector<Lane> lanes_;
  CUstream main_ = nullptr;  // on the first GPU: from begin to end
  CUevent begin_ = nullptr;
  CUevent end_ = nullptr;
};

}  // namespace braid::tools
