// Access for relays, as the interposer gives it.
#pragma once

#include "multipath/engine.h"

namespace braid::multipath {

/// The GPUs that have access now.
inline GpuSet grant(Engine& engine, CUmemoryPool pool, int gpu) {
  const GpuSet relays = engine.relays_to_grant(gpu);
  return relays != 0 && engine.grant_to(relays, pool) ? relays : 0;
}
inline GpuSet grant(Engine& engine, CUdeviceptr address, size_t size_bytes) {
  const GpuSet relays = engine.relays_to_grant(address, size_bytes);
  return relays != 0 && engine.grant_to(relays, address, size_bytes) ? relays : 0;
}

}  // namespace braid::multipath
