// The kernel mover: enqueues one transfer as pull kernels on every path (pull.h). The target's own
// kernel stands in the program's stream and can carry everything by itself; relays' kernels stand
// in their channels, and whoever is free takes the next slice. The program's stream goes on when
// every slice has landed.
//
// Everything is enqueued when the call returns, and nothing waits for the CPU or for a later call.
#pragma once

#include <span>

#include "cuda/driver.h"
#include "multipath/gate.h"
#include "multipath/relay.h"
#include "multipath/transfer.h"
#include "multipath/transfer_state.h"

namespace braid::multipath {

/// Who makes room for whom on a link (pull.h, ranks and relay slots).
struct YieldPolicy {
  Priority priority = Priority::kBulk;
  bool yields = true;  ///< relays rest while what is not braid's congests their link
  uint32_t relay_slot = cuda::kNoRelaySlot;
  bool is_favoured = false;
};

/// What the target's kernels are launched with.
struct DirectPath {
  const PullKernels& kernels;
  const LinkState& link;
  int priority = 0;         ///< of the launches, whatever the stream's
  unsigned wait_flags = 0;  ///< how a stream waits for a count that other GPUs write
};

struct KernelJob {
  Direction direction = Direction::kHostToDevice;
  CUstream stream = nullptr;  ///< the program's, whose context is current or becomes so
  CUcontext context = nullptr;
  SlicedBytes bytes;
  YieldPolicy yield_policy;
  DirectPath direct;
  std::span<const RelayPath> relays;  ///< one channel each
};

/// Enqueues the whole transfer: kAccelerated; kDriverError with nothing enqueued that moves bytes;
/// or kFailed, when the driver refuses in the end what it must not refuse. A relay that cannot be
/// launched is done without: its blocks are launched on the target, where they find nothing left,
/// and if that fails as well, the state is retired. The caller's current context is kept.
Enqueued enqueue_kernels(const cuda::Driver& driver, const KernelJob& job, TransferState& state);

}  // namespace braid::multipath
