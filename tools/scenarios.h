// Measuring what is more than one pinned linear copy: batches of scattered segments, both
// directions at once, a copy to every GPU at once, pageable memory. Each natively and through
// braid, in turns with the server's limit (limit.h). Every byte is verified.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "cuda/driver.h"
#include "multipath/engine.h"
#include "tools/measure.h"
#include "tools/segment_list.h"
#include "tools/workbench.h"

namespace braid::tools {

enum class Scenario {
  kBatch,     ///< segments at random places of both ends, as one batch
  kBoth,      ///< to the target and from it at once, on two streams
  kEveryGpu,  ///< each GPU its own copy, all at once
  kPageable,  ///< memory that is not pinned; by the wall clock, the call and its stream
};

/// "batch", "both", "every-gpu", "pageable".
Result<Scenario> parse_scenario(const std::string& text);

struct ScenarioCase {
  Scenario scenario = Scenario::kBatch;
  multipath::Direction direction = multipath::Direction::kHostToDevice;  ///< not of kBoth
  uint64_t size_bytes = 0;     ///< of each direction, or of each GPU
  uint64_t segment_bytes = 0;  ///< of kBatch
  int repeat = 0;
  bool with_limit = false;
  bool is_warm = false;  ///< GPUs are awake when a copy starts (warm_up.h)
};

/// Owns an engine and, for each GPU that the scenario copies to or from, a buffer, two streams and
/// two pinned buffers.
class ScenarioBench : Workbench {
 public:
  /// `max_bytes` bounds the cases' sizes.
  static Result<std::unique_ptr<ScenarioBench>> open(const cuda::Driver& driver,
                                                     const Options& options, Scenario scenario,
                                                     int target, uint64_t max_bytes, uint64_t seed);
  ScenarioBench(const ScenarioBench&) = delete;
  ScenarioBench& operator=(const ScenarioBench&) = delete;

  Result<Outcome> run(const ScenarioCase& what);

 private:
  // What goes up comes from `data` to the first half of `device`; what goes down comes from the
  // second half to `landing`, so that both can be under way at once.
  struct Gpu {
    CUcontext context;
    CUstream streams[2];  // by direction
    CUevent ends[2];
    CUdeviceptr device;
    char* data;
    char* landing;
  };
  enum class Side { kNative, kBraid };

  ScenarioBench(const cuda::Driver& driver, Scenario scenario, int target, uint64_t max_bytes,
                uint64_t seed);
  Status prepare(const Options& options);
  Status open_gpu(CUcontext context);
  Status poison(const ScenarioCase& what);
  Result<double> time_once(const ScenarioCase& what, Side side, std::string& verdict);
  Status enqueue(const ScenarioCase& what, Side side, std::string& verdict);
  static char* host_end(const Gpu& gpu, multipath::Direction direction);
  CUdeviceptr device_end(const Gpu& gpu, multipath::Direction direction) const;
  Status copy(const Gpu& gpu, multipath::Direction direction, uint64_t size_bytes, Side side,
              std::string& verdict);
  Status copy_batch(const ScenarioCase& what, Side side, std::string& verdict);
  Status copy_pageable(const ScenarioCase& what, Side side, std::string& verdict);
  Status start_all();
  Status join_all();
  Result<bool> verify(const ScenarioCase& what);
  bool has_segments(const ScenarioCase& what, const std::vector<char>& seen) const;
  uint64_t seed_of(size_t gpu) const { return seed_ + gpu; }
  void scatter(const ScenarioCase& what);
  uint64_t bytes_of(const ScenarioCase& what) const;

  Scenario scenario_;
  uint64_t max_bytes_;
  uint64_t seed_;
  std::vector<Gpu> gpus_;  // that take part; but for kEveryGpu the target alone
  std::vector<char> pageable_;
  SegmentList segments_{multipath::Direction::kHostToDevice};
};

}  // namespace braid::tools
