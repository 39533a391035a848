// Relays are let into memory that the program maps for chosen GPUs, and into its pools.
#pragma once

#include "multipath/engine.h"

namespace braid::preload {

/// The engine's relays are open: grants them what the program has made so far. Later memory is
/// granted as it comes. Call it inside braid (state.h, ReentryGuard).
void grant_memory_made_so_far(multipath::Engine& open);

}  // namespace braid::preload
