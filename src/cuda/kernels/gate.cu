// Contract: gate.h. Host twin, to be kept in step: gate_twin.cpp.
#include "cuda/kernels/gate.h"

using braid::cuda::GateArgs;

// There is no deadline here: the CPU promises to open every gate it closes.
extern "C" __global__ void __launch_bounds__(1) braid_gate(const __grid_constant__ GateArgs args) {
  constexpr unsigned kPollNs = 1000;
  const auto* word = reinterpret_cast<const unsigned*>(args.word);
  unsigned seen = 0;
  while (true) {
    asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(seen) : "l"(word) : "memory");
    if (static_cast<int>(seen - args.generation) >= 0) return;
    __nanosleep(kPollNs);
  }
}

extern "C" __global__ void __launch_bounds__(1) braid_fail(const __grid_constant__ GateArgs args) {
  asm volatile("trap;");
}
