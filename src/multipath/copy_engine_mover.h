// The copy-engine mover: a contiguous copy as a few copies of the driver's, on the target's link
// and on relays' links at once, all enqueued before the call returns (copy_split.h). It spends no
// SM time anywhere, and what carries the target's own share is the copy that the program asked for.
//
// The order of the calls is what makes a refusal harmless: the program's stream says first that it
// has come so far; what a relay does not take goes over the direct path; and last the stream waits
// for the relays.
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
  double native_us = 0;               ///< what the copy would take over the target's own link
  std::span<const RelayPath> relays;  ///< in the order of the plan's shares
};

/// Enqueues the whole copy: kAccelerated; kDriverError with nothing enqueued that moves bytes; or
/// kFailed, when the driver refuses in the end what it must not refuse.
Enqueued enqueue_copies(const cuda::Driver& driver, const CopyEngineJob& job, TransferState& state);

}  // namespace braid::multipath
