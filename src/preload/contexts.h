// What braid hears of the program's contexts, and when it creates the engine. None of this is on a
// copy's path, so it may allocate and lock; it opens no relay.
#pragma once

#include <cuda.h>

namespace braid::preload {

/// Prepares the engine the first time, and makes the primary contexts known to it that have become
/// active: call it, inside braid (state.h, ReentryGuard) and with a driver, when the program makes
/// one.
void create_engine() noexcept;

/// The same with a context that the program has just made. Call it before the program can hold a
/// stream there: to load code waits for the context's streams.
void context_made(CUcontext context) noexcept;

enum class Ending : bool {
  kDestroyed,  ///< whoever holds the context
  kReleased,   ///< unless somebody else holds it: braid lets go of it
};

/// Before the driver ends the context: what the engine has there goes with it. True: the program
/// has made it, by a way that braid has seen. Where it lives on (cuCtxAttach), its copies are
/// native.
bool forget_context(CUcontext context, Ending ending) noexcept;

/// The driver has refused: the context is what it was, and memory that the program has pinned by
/// now must be copied as before.
void take_back(CUcontext context, bool is_made) noexcept;

}  // namespace braid::preload
