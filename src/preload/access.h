// Gives relays access to memory that the program maps for chosen GPUs, and to its pools.
#pragma once

#include "multipath/engine.h"

namespace braid::preload {

/// Call it when the engine's relays are open: grants them access to the memory that the program has
/// made so far. Later memory is granted when it is made. Call it inside braid (state.h,
/// ReentryGuard).
void grant_memory_made_so_far(multipath::Engine& open);

}  // namespace braid::preload
