// When braid gets ready in a process, and what it hears of contexts. Call everything here inside
// braid (runtime.h, Inside), with a driver.
#pragma once

#include <cuda.h>

namespace braid::preload {

/// The program pins host memory, or copies much that is not pinned: the engine's relays are opened
/// the first time (opener.h), and every context that the program has made becomes a target; later
/// the contexts that are new do. Allocates; while relays open it waits for none of them.
void get_ready() noexcept;

/// Takes the next step of opening (Engine::open_next), or the last: lends memory to the relays,
/// makes targets of the program's contexts, and lets copies in. True while there is more to do. One
/// thread at a time. A step may take seconds, and no primary context ends meanwhile.
bool open_next_relay() noexcept;

/// The program has made a GPU active: its primary context is a target from now on.
void primary_context_made() noexcept;

enum class Ending : bool {
  kDestroyed,  ///< whoever holds the context
  kReleased,   ///< unless somebody else holds it: braid lets go of it
};

/// Before the driver ends a primary context: the engine's streams and memory there go with it.
void forget_context(CUcontext context, Ending ending) noexcept;

}  // namespace braid::preload
