// A domain whose bytes are moved by a thread of its own. Over TCP the CPU copies every byte, so the
// rails of one engine together are as fast as the engine's thread, unless each has a thread.
//
// The engine's thread posts to a queue and takes completions from another one; it waits for no
// write. Its other calls wait for the look that the thread makes at that moment. What is posted to
// a peer that has no room does not hold up what is posted to others. The contract is that of
// fabric/domain.h.
// Source: NCCL's NCCL_SOCKET_NTHREADS; FI_PROGRESS_AUTO of libfabric.
#pragma once

#include <memory>

#include "fabric/domain.h"

namespace braid::fabric {

/// The thread runs where the caller's may run, and ends with the domain.
std::unique_ptr<Domain> with_progress_thread(std::unique_ptr<Domain> wire);

}  // namespace braid::fabric
