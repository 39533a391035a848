// Memory that only some GPUs may touch: ranges that a program maps for chosen GPUs (virtual memory
// management), and stream-ordered pools. Ask the driver for their access at every copy: it may
// change when an address is unmapped and mapped again, and the question costs little beside a
// transfer's launches. Access is granted when braid learns of the memory (Engine::grant), never by
// a copy. Keeps nothing and allocates nothing; safe from any thread.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cuda/driver.h"
#include "multipath/transfer.h"

namespace braid::multipath {

/// A set of GPUs: one bit for each ordinal.
using GpuSet = uint64_t;
inline constexpr GpuSet kEveryGpu = ~GpuSet{0};
inline constexpr int kMostGpus = 64;
/// 0 if `gpu` is not an ordinal.
inline constexpr GpuSet gpu_bit(int gpu) {
  return gpu >= 0 && gpu < kMostGpus ? GpuSet{1} << gpu : 0;
}

/// The GPUs of `gpus` that may move bytes in this direction: they may write the destination, or
/// read the source. If `pool` is null, the memory is the mapping that holds `address`.
GpuSet gpus_with_access(const cuda::Driver& driver, CUmemoryPool pool, CUdeviceptr address,
                        Direction direction, GpuSet gpus);

/// Lets `gpus` read and write the pool's memory, present and future: all of them, or none.
bool grant_access(const cuda::Driver& driver, CUmemoryPool pool, GpuSet gpus);

/// The same for the whole mappings that make up the range.
bool grant_access(const cuda::Driver& driver, CUdeviceptr address, size_t size_bytes, GpuSet gpus);

/// The GPU whose memory is mapped in the whole range; -1 when there are several, or holes.
int gpu_of_mappings(const cuda::Driver& driver, CUdeviceptr address, size_t size_bytes);

}  // namespace braid::multipath
