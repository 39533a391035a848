// The kernels that hold a stream and that end a context, shared by the device code (gate.cu), its
// host twin (gate_twin.cpp) and the code that launches them (multipath). Neither moves bytes.
//
// `braid_gate` holds a stream until the CPU opens a gate, where a stream cannot wait for a value by
// itself: the paper's spin kernel (MMA section 4). `braid_fail` ends its context with a sticky
// error: the last resort of a transfer that can no longer be completed, so that the program does
// not go on with bytes that never came. Both run as one block of one thread.
#pragma once

#include <cstdint>

namespace braid::cuda {

inline constexpr const char* kGateKernelName = "braid_gate";
inline constexpr const char* kFailKernelName = "braid_fail";

/// The one argument of both kernels; `braid_fail` reads none of it.
struct GateArgs {
  uint64_t word;        ///< uint32_t* in host memory that the GPU reads
  uint32_t generation;  ///< the gate is open when the word is this or later, cyclically
  uint32_t unused;
};

}  // namespace braid::cuda
