// Who may touch which memory. Every byte that a GPU moves is looked up here, when it moves: by copy
// engines and stream memory operations, which reach all plain memory, and by kernels, which need
// peer access to other contexts' memory. The world's lock covers it.
#pragma once

#include <cstdint>

#include "emulator/model/memory.h"
#include "emulator/model/objects.h"

namespace braid::emulator {

enum class Access { kRead, kWrite };

/// What the allocation's grants and its flags allow the GPU of CUDA ordinal `device`; all that
/// counts for a copy engine.
bool engine_may(int device, const Allocation& allocation, Access access);
/// The same for a kernel, which also needs peer access where access is not granted one by one.
bool kernel_may(const Context& context, const Allocation& allocation, Access access);
/// Loads and stores of the program.
bool cpu_may(const Allocation& allocation);

/// The memory at the start of the range; null when the access would fault anywhere in it, now.
Allocation* find_for_engine(Memory& memory, int device, uint64_t address, uint64_t size_bytes,
                            Access access);
Allocation* find_for_kernel(Memory& memory, const Context& context, uint64_t address,
                            uint64_t size_bytes, Access access);

}  // namespace braid::emulator
