// The notifications about the program's contexts, and the creation of the engine. No copy calls
// these, so they may allocate and lock; they open no relay.
#pragma once

#include <cuda.h>

#include "base/status.h"

namespace braid::preload {

// The first call of any of these prepares the engine. A thread that calls meanwhile waits for it: a
// context must be known before the program can have a stream there.

/// Registers the primary contexts that have become active. Call it inside braid (state.h,
/// ReentryGuard) and with a driver.
void create_engine() noexcept;

/// The program has just retained this GPU's primary context; call it likewise.
void primary_made(CUdevice device) noexcept;

/// The program has just made a context. Call it before the program can have a stream there: loading
/// code waits for the context's streams.
void context_made(CUcontext context) noexcept;

/// For a copy to or from a context that the engine may not know: registers it, unless it is ending.
/// Null: the primary ones. Call it inside braid.
Status make_known(CUcontext context);

enum class Ending : bool {
  kDestroyed,  ///< with every owner
  kReleased,   ///< when its last owner except braid releases it: braid releases it too
};

/// Call it before the driver ends the context: the engine's objects there end with it. True: the
/// program has made the context in a way that braid has seen. If the context lives on
/// (cuCtxAttach), its copies are native.
bool forget_context(CUcontext context, Ending ending) noexcept;

/// The driver has refused: the context lives on, and memory that the program has pinned meanwhile
/// must be copied as before.
void take_back(CUcontext context, bool is_made) noexcept;

}  // namespace braid::preload
