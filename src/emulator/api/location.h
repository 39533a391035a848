// Locations, as virtual memory management, pools and managed memory name GPUs and NUMA nodes.
#pragma once

#include <cuda.h>

#include "emulator/api/entry.h"

namespace braid::emulator {

/// The place of new memory. CUDA_ERROR_INVALID_DEVICE for a GPU or node that does not exist.
Found<Place> find_place(const Call& call, const CUmemLocation& location);

/// The accessor that a location names in grants: a CUDA ordinal, or CU_DEVICE_CPU for any host
/// location.
Found<int> find_accessor(const Call& call, const CUmemLocation& location);

/// Checks the requested grants and adds all or none. `place` is the place of the memory: its own
/// GPU and GPUs with a route to it may be granted access, the CPU only to memory on the host.
CUresult grant(const Call& call, Place place, const CUmemAccessDesc* wanted, size_t count,
               Grants& grants);

/// Call it first where access is set: it waits if the variant says so (model/variant.h).
void wait_to_set_access(Call& call);

}  // namespace braid::emulator
