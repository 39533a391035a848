// A driver table for braid alone: it counts braid's calls of each function, can refuse one of them,
// and keeps a ledger of what braid owns. The program's own calls go to the driver itself, so that
// no fault here is ever the program's.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "cuda/driver.h"

namespace braid::faults {

/// Refuse the `nth` call (from 1) of a driver function; 0: none.
struct Fault {
  std::string name;  ///< as in BRAID_DRIVER_FUNCTIONS, or "copy_batch"
  int nth = 0;
  bool stays = false;  ///< and every later one
};

/// "cuEventRecord:3", or "cuEventRecord:3+"; nothing that parse_fault does not take.
std::string describe(const Fault& fault);
bool parse_fault(const std::string& text, Fault& fault);

/// What a driver says when it refuses this call: of memory, of a launch, or that nobody knows.
CUresult refusal_of(const std::string& name);

/// A refused call of these leaves the object where it is, and nothing can be done about it.
bool gives_back(const std::string& name);

/// `real` with every function wrapped. One a process, since the functions have no state of their
/// own.
cuda::Driver wrap(const cuda::Driver& real, const Fault& fault);

/// The driver that was wrapped.
const cuda::Driver& real_driver();

/// How often braid has called each function since `wrap`.
std::map<std::string, int> calls_made();
/// The fault has happened.
bool was_refused();

/// What braid has made and not given back: "stream of context 0x...". Sorted.
std::vector<std::string> still_owned();
/// A handle that braid gave back although it was gone, with its context or before; else empty.
std::string misuse();
/// The program has ended the context: all in it is gone.
void context_ended(CUcontext context, CUdevice device, bool is_primary);

}  // namespace braid::faults
