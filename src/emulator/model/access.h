// Access rights to memory. Every byte that a GPU moves is checked here, when it moves. Copy engines
// and stream memory operations reach all plain memory; kernels need peer access to other contexts'
// memory. The world's lock covers it.
#pragma once

#include <cstdint>

#include "emulator/model/memory.h"
#include "emulator/model/objects.h"

namespace braid::emulator {

enum class Access { kRead, kWrite };

/// True if the allocation's grants and flags allow the GPU of CUDA ordinal `device`; a copy engine
/// needs no more.
bool engine_may(int device, const Allocation& allocation, Access access);
/// The same for a kernel, which also needs peer access where access is not granted individually.
bool kernel_may(const Context& context, const Allocation& allocation, Access access);
/// Loads and stores of the program.
bool cpu_may(const Allocation& allocation);

/// The memory at the start of the range; null if an access would fault anywhere in the range now.
Allocation* find_for_engine(Memory& memory, int device, uint64_t address, uint64_t size_bytes,
                            Access access);
Allocation* find_for_kernel(Memory& memory, const Context& context, uint64_t address,
                            uint64_t size_bytes, Access access);

}  // namespace braid::emulator
