// The kernel mover: enqueues one transfer as pull kernels on every path. Kernels and events in
// stream order are the synchronisation; no CPU thread takes part, and the call returns at once.
#pragma once

#include <span>

#include "cuda/driver.h"
#include "multipath/endpoint.h"
#include "multipath/lane.h"
#include "multipath/ticket.h"
#include "multipath/transfer.h"

namespace braid::multipath {

struct MoverJob {
  Transfer transfer;
  std::span<Endpoint* const> paths;  ///< the target first, then relays, in the lane's order
  std::span<const int> lane_paths;   ///< index of each path's stream in the lane
  uint32_t slice_bytes = 0;
  bool yields = true;
};

struct MoverResult {
  Verdict verdict = Verdict::kDriverError;
  int refused_path = -1;  ///< index into the job's paths of a relay that could not be launched
};

/// Enqueues the whole transfer: kAccelerated, or kDriverError with nothing enqueued that moves
/// bytes. A relay that cannot be launched is done without, and the ticket is retired. The caller's
/// current context is kept.
MoverResult enqueue(const cuda::Driver& driver, const MoverJob& job, Lane& lane, Ticket& ticket);

}  // namespace braid::multipath
