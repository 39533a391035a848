// When braid gets ready in a process, and what it hears of contexts. Call everything here inside
// braid (runtime.h, Inside), with a driver.
#pragma once

#include <cuda.h>

namespace braid::preload {

/// The program pins host memory, or copies much that is not pinned: the engine opens the first
/// time, with every context that the program has made so far, and later prepares the contexts that
/// are new. May allocate and take a second.
void get_ready() noexcept;

/// The program has made a GPU active: its primary context is a target from now on.
void primary_context_made() noexcept;

enum class Ending : bool {
  kDestroyed,  ///< whoever holds the context
  kReleased,   ///< unless somebody else holds it: braid lets go of it
};

/// Before the driver ends a primary context: the engine's streams and memory there go with it.
void forget_context(CUcontext context, Ending ending) noexcept;

}  // namespace braid::preload
