// Enqueues copies of any form in a stream. Decides which sources are read before the call returns,
// and whether the host waits for the end.
#pragma once

#include <vector>

#include "emulator/api/entry.h"
#include "emulator/ops/ops.h"

namespace braid::emulator {

enum class Waiting { kSynchronous, kAsynchronous };

/// Enqueues the copies as one piece of work, without empty ones. The caller has checked for
/// captures.
CUresult issue_copies(Call& call, const StreamPtr& stream, std::vector<Copy> copies,
                      Waiting waiting);

/// Enqueues one copy of a call that captures record. Its source is read in stream order, or during
/// the call if it is pageable and not recorded.
CUresult issue_copy(Call& call, const StreamPtr& stream, Copy copy, Waiting waiting);

}  // namespace braid::emulator
