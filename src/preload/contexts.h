// What braid hears of the program's contexts, and when it prepares the engine. None of this is on a
// copy's path, so it may allocate and lock; it opens no relay.
#pragma once

#include <cuda.h>

namespace braid::preload {

/// Prepares the engine the first time, and makes the primary contexts known to it that have become
/// active: call it, inside braid (state.h, Inside) and with a driver, when the program makes one.
void prepare_engine() noexcept;

/// The same with a context that the program has just made. Call it before the program can hold a
/// stream there: to load code waits for the context's streams.
void context_made(CUcontext context) noexcept;

/// The program holds the context once more: cuCtxAttach, which has long been deprecated.
void context_attached(CUcontext context) noexcept;

/// What the program gives up of a context that it has made.
enum class Holds : bool {
  kOne,  ///< detaching; the last one ends the context
  kAll,
};
struct GivenUp {
  int holds = 0;        ///< none: made in a way that braid has not seen
  bool is_end = false;  ///< the engine has forgotten the context
};

/// Before the driver ends the context, and before it has agreed.
GivenUp give_up(CUcontext context, Holds which) noexcept;

/// The driver has refused: the context is what it was, and memory that the program has pinned by
/// now must be copied as before.
void take_back(CUcontext context, GivenUp given) noexcept;

enum class Ending : bool {
  kDestroyed,  ///< whoever holds the context
  kReleased,   ///< unless somebody else holds it: braid lets go of it
};

/// Before the driver ends a primary context: what the engine has there goes with it.
void forget_primary_context(CUcontext context, Ending ending) noexcept;

}  // namespace braid::preload
