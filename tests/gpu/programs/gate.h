// Holding a stream back until the host says so: a stream's own wait (gate_wait.cpp) or a kernel
// that spins (gate_kernel.cpp), as nvbandwidth does it.
#pragma once

#include <cuda.h>

#include <cstdint>

namespace program {

/// Whatever holding a stream of the current context will need: nothing is loaded afterwards.
void prepare_gate();

/// `stream` goes no further until the host has stored 1 to `word`, which lies in pinned memory.
void hold(CUstream stream, volatile uint32_t* word);

/// Blocks on every multiprocessor, and more than fit, that wait until `word`, which may lie in
/// device memory, is not 0 (gate_kernel.cpp). prepare_gate() comes first.
void hold_every_processor(CUstream stream, const volatile uint32_t* word);

}  // namespace program
