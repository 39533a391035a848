// The transfers that a process has under way, in words: which work waits for braid, and what braid
// waits for. For a user whose program seems to hang (`braid waits`). Reads host memory only.
#pragma once

#include <string>

#include "multipath/transfer_state.h"

namespace braid::multipath {

/// One line: "GPU 0 h2d 1073741824 bytes by copy_engine in stream 0x55d0, enqueued 12 ms ago: ...".
std::string describe_wait(const TransferState& state, int target_gpu, uint64_t now_ns);

}  // namespace braid::multipath
