// The kernel mover: enqueues one transfer as pull kernels on every path. Kernels and events in
// stream order are the synchronisation; no CPU thread takes part, unless a relay fails (rescue.h),
// and the call returns at once.
#pragma once

#include <bitset>
#include <span>

#include "cuda/driver.h"
#include "multipath/endpoint.h"
#include "multipath/lane.h"
#include "multipath/ticket.h"
#include "multipath/transfer.h"

namespace braid::multipath {

/// Who makes room for whom on a link (pull.h, ranks and relay slots).
struct Manners {
  Priority priority = Priority::kBulk;
  bool direct_first = true;  ///< relays wait while their own GPU has direct work
  bool yields = true;        ///< and when their link is congested by what is not braid's
  uint32_t relay_slot = cuda::kNoRelaySlot;
  bool is_favoured = false;
};

struct MoverJob {
  Direction direction = Direction::kHostToDevice;
  CUstream stream = nullptr;  ///< the program's
  SlicedBytes bytes;
  Manners manners;
  std::span<Endpoint* const> paths;  ///< the target first, then relays, in the lane's order
  std::span<const int> lane_paths;   ///< index of each path's stream in the lane
};

struct MoverResult {
  Verdict verdict = Verdict::kDriverError;
  std::bitset<cuda::kMaxPaths> refused;  ///< of the job's paths: relays that could not be launched
};

/// Enqueues the whole transfer: kAccelerated, or kDriverError with nothing enqueued that moves
/// bytes. A relay that cannot be launched is done without: its blocks are launched on the target
/// instead, and if that fails as well, the ticket is retired. The caller's current context is kept.
MoverResult enqueue(const cuda::Driver& driver, const MoverJob& job, Lane& lane, Ticket& ticket);

/// Enqueues the job over its first path alone, without a gate. Its stream is one of braid's in the
/// target's context, which is current.
CUresult enqueue_direct(const cuda::Driver& driver, const MoverJob& job, Ticket& ticket);

}  // namespace braid::multipath
