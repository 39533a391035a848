// When braid gets ready in a process, and what it hears of contexts. Call everything here inside
// braid (runtime.h, Inside), with a driver.
#pragma once

#include <cuda.h>

namespace braid::preload {

/// Prepares the engine the first time, and makes the primary contexts known to it that have become
/// active: call it when the program makes one. Allocates; opens no relay.
void get_ready() noexcept;

/// Opens the next relay (Engine::open_next), or after the last lends memory to the relays and lets
/// copies in. True while there is more to do. One thread at a time. A step may take seconds.
bool open_next_relay() noexcept;

/// The program has made a GPU active: its primary context is the engine's from now on.
void primary_context_made() noexcept;

enum class Ending : bool {
  kDestroyed,  ///< whoever holds the context
  kReleased,   ///< unless somebody else holds it: braid lets go of it
};

/// Before the driver ends a primary context: the engine's kernels there go with it.
void forget_context(CUcontext context, Ending ending) noexcept;

}  // namespace braid::preload
