// The decoder as a kernel: a block of kHead threads for each request.
#include "decoder.h"

namespace {

struct Threads {
  __device__ unsigned lane() const { return threadIdx.x; }
  __device__ unsigned lanes() const { return blockDim.x; }
  __device__ void sync() const { __syncthreads(); }
  __device__ uint32_t load(uint64_t from) const {
    return *reinterpret_cast<const volatile uint32_t*>(from);
  }
  __device__ void store(uint64_t to, uint32_t word) const {
    *reinterpret_cast<volatile uint32_t*>(to) = word;
  }
};

}  // namespace

extern "C" __global__ void rotate_decode(rotate::StepArgs args) {
  __shared__ rotate::Scratch scratch;
  const rotate::RequestStep step =
      reinterpret_cast<const rotate::RequestStep*>(args.requests)[blockIdx.x];
  Threads threads;
  rotate::Decoder<Threads>(threads, scratch, args, step).run();
}
