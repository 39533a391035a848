// Giving copies to a stream, whatever their form: which sources are read before the call returns,
// and whether the host waits for the end.
#pragma once

#include <vector>

#include "emulator/api/entry.h"
#include "emulator/ops/ops.h"

namespace braid::emulator {

enum class Waiting { kSynchronous, kAsynchronous };

/// Enqueues the copies as one piece of work, leaving out empty ones. The caller has looked at
/// captures.
CUresult issue_copies(Call& call, const StreamPtr& stream, std::vector<Copy> copies,
                      Waiting waiting);

/// One copy, of a call that captures record. Its source is read in stream order, or during the call
/// when it is pageable and not recorded.
CUresult issue_copy(Call& call, const StreamPtr& stream, Copy copy, Waiting waiting);

}  // namespace braid::emulator
