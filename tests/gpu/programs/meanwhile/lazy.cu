// Code that is loaded when it is first used. Built once for each kind and number, since a library
// is loaded whole by the first launch of any of its kernels, once on each GPU.
//   -DBRAID_KIND=kernel|stack|symbol -DBRAID_NUMBER=0..3
#include <cuda_runtime.h>

#define BRAID_JOIN_(kind, number) lazy_##kind##_##number
#define BRAID_JOIN(kind, number) BRAID_JOIN_(kind, number)

namespace {

constexpr int kStackWords = 512 << BRAID_NUMBER;
[[maybe_unused]] __device__ unsigned symbol;

[[maybe_unused]] __global__ void add_kernel(unsigned* words, int) { atomicAdd(words, 1u); }

// Needs more local memory than the GPU had set apart: drivers wait for the GPU to give it more.
[[maybe_unused]] __global__ void add_stack(unsigned* words, int seed) {
  unsigned local[kStackWords];
  for (int at = 0; at < kStackWords; ++at) local[at] = static_cast<unsigned>(at * seed);
  unsigned sum = 0;
  for (int at = 0; at < kStackWords; ++at) sum += local[(at * 7919u + sum) % kStackWords];
  atomicAdd(words, sum == 0 ? 1u : 2u);
}

[[maybe_unused]] __global__ void add_symbol(unsigned* words, int) { atomicAdd(words, symbol); }

[[maybe_unused]] cudaError_t launch_kernel(unsigned* words, cudaStream_t stream) {
  add_kernel<<<1, 1, 0, stream>>>(words, 0);
  return cudaGetLastError();
}

[[maybe_unused]] cudaError_t launch_stack(unsigned* words, cudaStream_t stream) {
  add_stack<<<1, 1, 0, stream>>>(words, 0);
  return cudaGetLastError();
}

[[maybe_unused]] cudaError_t launch_symbol(unsigned* words, cudaStream_t stream) {
  const unsigned one = 1;
  const cudaError_t copied =
      cudaMemcpyToSymbolAsync(symbol, &one, sizeof one, 0, cudaMemcpyHostToDevice, stream);
  if (copied != cudaSuccess) return copied;
  add_symbol<<<1, 1, 0, stream>>>(words, 0);
  return cudaGetLastError();
}

}  // namespace

#define BRAID_LAUNCH_(kind) launch_##kind
#define BRAID_LAUNCH(kind) BRAID_LAUNCH_(kind)

/// Adds 1 to a word of the current GPU.
cudaError_t BRAID_JOIN(BRAID_KIND, BRAID_NUMBER)(unsigned* words, cudaStream_t stream) {
  return BRAID_LAUNCH(BRAID_KIND)(words, stream);
}
