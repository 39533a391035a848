// Lets relays in where access is granted GPU by GPU (access.h), when a program makes a pool or maps
// a range: never on a copy's path, since the driver may take its time. Threads: any.
#pragma once

#include <utility>
#include <vector>

#include "cuda/driver.h"
#include "multipath/access.h"
#include "multipath/context_registry.h"

namespace braid::multipath {

/// To the relays of `gpu`, whose pool it is. The GPUs that may touch it now; none when nothing was
/// granted.
GpuSet grant_to_relays(const cuda::Driver& driver, ContextRegistry& registry, CUmemoryPool pool,
                       int gpu);

/// To the relays of the GPU that has the whole range mapped. Nothing where that GPU itself may not
/// write.
GpuSet grant_to_relays(const cuda::Driver& driver, ContextRegistry& registry, CUdeviceptr address,
                       size_t size_bytes);

/// The pools that the driver makes by itself, one for each GPU.
std::vector<std::pair<CUmemoryPool, GpuSet>> grant_default_pools(const cuda::Driver& driver,
                                                                 ContextRegistry& registry);

}  // namespace braid::multipath
