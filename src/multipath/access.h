// Memory that is not every GPU's to touch: ranges that a program maps for chosen GPUs (virtual
// memory management), and stream-ordered pools. Their access is the driver's to tell, copy by copy:
// what was true of an address may not be after it has been unmapped and mapped again, and asking
// costs a transfer little beside its launches. Granting is for whoever learns of the memory
// (Engine::grant), never for a copy. Keeps nothing and allocates nothing; safe from any thread.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cuda/driver.h"
#include "multipath/transfer.h"

namespace braid::multipath {

/// GPUs by ordinal, a bit each.
using GpuSet = uint64_t;
inline constexpr GpuSet kEveryGpu = ~GpuSet{0};
inline constexpr int kMostGpus = 64;
/// No bit for what is no ordinal.
inline constexpr GpuSet gpu_bit(int gpu) {
  return gpu >= 0 && gpu < kMostGpus ? GpuSet{1} << gpu : 0;
}

/// Those of `gpus` that may move bytes in this direction: write memory that is copied to, read
/// memory that is copied from. `pool` null: in the mapping that holds `address`.
GpuSet gpus_with_access(const cuda::Driver& driver, CUmemoryPool pool, CUdeviceptr address,
                        Direction direction, GpuSet gpus);

/// Lets `gpus` read and write the pool's memory, present and to come: all of them, or none.
bool grant_access(const cuda::Driver& driver, CUmemoryPool pool, GpuSet gpus);

/// The same for whole mappings that make up the range.
bool grant_access(const cuda::Driver& driver, CUdeviceptr address, size_t size_bytes, GpuSet gpus);

/// The GPU whose memory is mapped in the whole range; -1 when there are several, or holes.
int gpu_of_mappings(const cuda::Driver& driver, CUdeviceptr address, size_t size_bytes);

}  // namespace braid::multipath
