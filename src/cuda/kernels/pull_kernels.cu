// The pull kernels. Contract: pull.h. Host twin, to be kept in step: pull_twin.cpp.
//
// Two bodies, one protocol. `braid_pull_bulk` moves bytes with bulk asynchronous copies (sm_90 and
// newer): one thread keeps a ring of shared-memory stages full, so a path costs two warps instead
// of sixty-four and is faster when transfers are small. `braid_pull_to_host` does so with a smaller
// ring. `braid_pull` moves bytes with ordinary loads and stores: any architecture, any alignment.
#include "cuda/kernels/pull.h"
#include "cuda/kernels/pull_bulk.cuh"
#include "cuda/kernels/pull_protocol.cuh"
#include "cuda/kernels/pull_vector.cuh"

using braid::cuda::PullArgs;

extern "C" __global__ void __launch_bounds__(braid::cuda::kVectorThreads)
    braid_pull(const __grid_constant__ PullArgs args) {
  if (args.total_blocks == 0) return;
  braid::cuda::pull_vector(args);
}

// Shared memory lets one block on a multiprocessor: `1` says so, and spares it spilled registers.
extern "C" __global__ void __launch_bounds__(braid::cuda::kBulkThreads, 1)
    braid_pull_bulk(const __grid_constant__ PullArgs args) {
#if __CUDA_ARCH__ >= 900
  if (args.total_blocks == 0) return;
  braid::cuda::pull_bulk<braid::cuda::WideRing>(args);
#endif
}

extern "C" __global__ void __launch_bounds__(braid::cuda::kBulkThreads)
    braid_pull_to_host(const __grid_constant__ PullArgs args) {
#if __CUDA_ARCH__ >= 900
  if (args.total_blocks == 0) return;
  braid::cuda::pull_bulk<braid::cuda::ToHostRing>(args);
#endif
}
