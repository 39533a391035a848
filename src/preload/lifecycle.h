// When braid gets ready in a process.
#pragma once

namespace braid::preload {

/// The program pins host memory, or copies much that is not pinned: the engine opens the first
/// time, with every context that the program has made so far, and later prepares the contexts that
/// are new. May allocate and take a second. Call it inside braid (runtime.h, Inside), with a
/// driver.
void get_ready() noexcept;

}  // namespace braid::preload
