// The engine's relays are opened on a thread of braid's while the program goes on: a context takes
// the driver a tenth of a second, and more where several processes start at once. Copies are native
// until all are open.
#pragma once

namespace braid::preload {

enum class Opening : bool {
  kNow,           ///< returns when all are open
  kInBackground,  ///< if the process may have another thread; else everything stays native
};

/// The first call, of whichever thread, opens them; call it when the engine has been prepared,
/// holding no lock. A process that exits waits for
/// the step that is under way, since the driver's own handlers do not expect a context to be made
/// beside them; but not for ever, since that step may wait for a thread of the program's.
void open_relays(Opening when) noexcept;

}  // namespace braid::preload
