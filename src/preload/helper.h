// The thread that serves the interposer's engine (engine_thread.h). It does not run before a copy
// has come that relays would carry, unless the statistics are shown at an interval.
#pragma once

namespace braid::preload {

enum class Opening : bool {
  kNow,           ///< returns when those of all GPUs are open
  kInBackground,  ///< if the process may have another thread; else everything stays native
};

/// The first call, of whichever thread, opens them; every later one wakes the thread. Call it when
/// the engine has been created, holding no lock.
void open_relays(Opening when) noexcept;

/// Starts the thread, if it is not there. False: the process may not have another. A process that
/// exits waits for the step that is under way, since the driver's own handlers do not expect a
/// context to be made beside them; but not for ever, since that step may wait for a thread of the
/// program's.
bool start_helper() noexcept;

/// There is something to do for the thread, if there is one.
void wake_helper() noexcept;

/// Ends the thread, for good; by itself when the process exits. Whoever deletes the engine calls it
/// first.
void end_helper() noexcept;

}  // namespace braid::preload
