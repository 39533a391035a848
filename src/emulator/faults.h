// Faults for tests: calls that fail, links that slow down, GPUs that are busy. They come from the
// profile's "faults" object and from the environment variable BRAID_FAULTS, JSON of the same form:
//   {"calls": [{"name": "cuMemAlloc_v2", "nth": 3, "error": "CUDA_ERROR_OUT_OF_MEMORY"}],
//    "links": [{"ends": ["numa0", "gpu1"], "factor": 0.5, "from_us": 0, "to_us": 5000}],
//    "busy":  [{"gpu": 2, "from_us": 0, "to_us": 1e6}],
//    "contexts_fail_alone": true,
//    "contexts_take_ms": 200,
//    "kernels_take_local_bytes": 64}
// `nth` counts from 1; a link's bandwidth is multiplied by `factor`; kernels that become due on a
// busy GPU start when it no longer is. Times are virtual, since cuInit. GPUs are the server's. A
// GPU fault ends every context of the process, as on hardware, or its own alone. Making a primary
// context takes no time, or so much real time. Kernels use no local memory, or so much a thread.
#pragma once

#include <cuda.h>

#include <chrono>
#include <map>
#include <string>
#include <vector>

#include "base/status.h"
#include "emulator/model/machine.h"
#include "topology/server.h"

namespace braid::emulator {

class Faults {
 public:
  /// Adds what the JSON text says, if any; `origin` names it in errors. Link and GPU faults go to
  /// the machine.
  Status add(const std::string& json, const std::string& origin, const topology::Server& server,
             Machine& machine);

  /// Counts a call of `name`; what it must return instead of doing anything, or success.
  CUresult count_call(const char* name);

  bool contexts_fail_alone() const { return contexts_fail_alone_; }
  std::chrono::milliseconds contexts_take() const { return contexts_take_; }
  size_t kernels_take_local_bytes() const { return kernels_take_local_bytes_; }

 private:
  struct CallFault {
    int nth;
    CUresult error;
  };
  struct Calls {
    int made = 0;
    std::vector<CallFault> faults;
  };
  std::map<std::string, Calls, std::less<>> calls_;
  bool contexts_fail_alone_ = false;
  std::chrono::milliseconds contexts_take_{0};
  size_t kernels_take_local_bytes_ = 0;
};

}  // namespace braid::emulator
