// The faults of a server (topology/faults.h), carried out: calls that fail, links that slow down,
// GPUs that are busy.
#pragma once

#include <cuda.h>

#include <chrono>
#include <map>
#include <string>
#include <vector>

#include "emulator/model/machine.h"
#include "topology/faults.h"

namespace braid::emulator {

class Faults {
 public:
  /// Faults of links and GPUs go to the machine.
  Faults(topology::Faults wanted, Machine& machine);

  /// Counts a call of `name`. Returns the error that the call must return without acting, or
  /// success.
  CUresult count_call(const char* name);

  bool contexts_fail_alone() const { return wanted_.contexts_fail_alone; }
  std::chrono::milliseconds contexts_take() const {
    return std::chrono::milliseconds(wanted_.contexts_take_ms);
  }
  size_t kernels_take_local_bytes() const {
    return static_cast<size_t>(wanted_.kernels_take_local_bytes);
  }

 private:
  topology::Faults wanted_;
  std::map<std::string, int, std::less<>> calls_;  // made so far, of symbols that are to fail
};

}  // namespace braid::emulator
