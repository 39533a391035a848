// The programs' own kernel on GPUs (kernel.h). One block, and one word after the other, so that it
// takes its time; what its twin on the emulated server does is the same.
#include "stress/kernel.h"

using braid::stress::kMixStrideBytes;
using braid::stress::MixArgs;

extern "C" __global__ void stress_mix(MixArgs args) {
  if (threadIdx.x != 0) return;
  for (unsigned long long at = 0; at + sizeof(unsigned) <= args.size_bytes; at += kMixStrideBytes) {
    const unsigned from = *reinterpret_cast<const volatile unsigned*>(args.from + at);
    *reinterpret_cast<volatile unsigned*>(args.to + at) += from * 3 + 1;
  }
}
