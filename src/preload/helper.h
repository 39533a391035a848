// The thread that serves the interposer's engine (engine_thread.h). It starts at the first copy
// that relays would carry, or earlier if the statistics are shown at an interval.
#pragma once

namespace braid::preload {

enum class Opening : bool {
  kNow,           ///< returns when the relays of all GPUs are open
  kInBackground,  ///< needs another thread in the process; else everything stays native
};

/// The first call, of any thread, opens the relays; every later one wakes the thread. Call it when
/// the engine has been created, without holding a lock.
void open_relays(Opening when) noexcept;

/// Starts the thread, if it does not run. False: the process may not have another. At exit the
/// process waits for the step that is under way, since the driver's own exit handlers do not expect
/// a context to be made at the same time. The wait is limited, since that step may wait for a
/// thread of the program.
bool start_helper() noexcept;

/// Wakes the thread for new work, if there is a thread.
void wake_helper() noexcept;

/// Ends the thread for good. At exit it ends by itself. Call this before deleting the engine.
void end_helper() noexcept;

}  // namespace braid::preload
