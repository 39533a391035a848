// The copy-engine mover: makes a contiguous copy by a few copies of the driver, on the target's
// link and on relays' links at once. All are enqueued before the call returns (copy_split.h). It
// uses no SM time. The copy that the program asked for carries the target's own share.
//
// The order of the calls makes a refusal harmless. First the program's stream signals that it has
// come so far. Then bytes that a relay refuses go over the direct path. Last, the stream waits for
// the relays.
#pragma once

#include <optional>
#include <span>

#include "cuda/driver.h"
#include "multipath/copy_split.h"
#include "multipath/gate.h"
#include "multipath/relay.h"
#include "multipath/transfer.h"
#include "multipath/transfer_state.h"

namespace braid::multipath {

struct CopyEngineJob {
  Direction direction = Direction::kHostToDevice;
  Segment whole;
  CUstream stream = nullptr;  ///< the program's
  bool is_staged = true;
  CopySplit plan;
  double native_us = 0;               ///< the time of the whole copy over the target's own link
  std::span<const RelayPath> relays;  ///< in the order of the plan's shares
};

/// Enqueues the whole copy: kAccelerated. kDriverError: nothing that moves bytes was enqueued.
/// kFailed: the driver has refused one of the last steps, which may not fail.
Enqueued enqueue_copies(const cuda::Driver& driver, const CopyEngineJob& job, TransferState& state);

}  // namespace braid::multipath
