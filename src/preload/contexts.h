// What braid hears of the program's contexts, and when it creates the engine. None of this is on a
// copy's path, so it may allocate and lock; it opens no relay.
#pragma once

#include <cuda.h>

#include "base/status.h"

namespace braid::preload {

// Each prepares the engine the first time. A thread that comes while another does so waits for it:
// what it has made is to be known before it can have a stream there.

/// Makes the primary contexts known that have become active. Call it inside braid (state.h,
/// ReentryGuard) and with a driver.
void create_engine() noexcept;

/// The program has just retained this GPU's; likewise.
void primary_made(CUdevice device) noexcept;

/// The program has just made a context. Call it before the program can hold a stream there: to load
/// code waits for the context's streams.
void context_made(CUcontext context) noexcept;

/// A copy is to or from a context that the engine may not know: makes it known, unless it is
/// ending. Null: the primary ones. Inside braid.
Status make_known(CUcontext context);

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
