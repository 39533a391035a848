// The kernel mover: enqueues one transfer as pull kernels on every path (pull.h). The target's own
// kernel is in the program's stream and can carry everything alone. Relays' kernels are in their
// channels. A kernel that is free takes the next slice. The program's stream goes on when every
// slice has landed.
//
// If no kernel may run on the target (OwnLink), the driver's copies of a part of the bytes are in
// the program's stream in its place. Relays' kernels carry the slices of the rest, and none of them
// leaves before all are taken.
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

/// Which traffic makes room for which on a link (pull.h, ranks and relay slots).
struct YieldPolicy {
  Priority priority = Priority::kBulk;
  bool yields = true;  ///< relays rest while other traffic congests their link
  uint32_t relay_slot = cuda::kNoRelaySlot;
  bool is_favoured = false;
};

/// The launch parameters of the target's kernels.
struct DirectPath {
  const PullKernels& kernels;
  const LinkState& link;
  int priority = 0;         ///< of the launches, independent of the stream's
  unsigned wait_flags = 0;  ///< how a stream waits for a count that other GPUs write
};

struct KernelJob {
  Direction direction = Direction::kHostToDevice;
  CUstream stream = nullptr;  ///< the program's, whose context is current or becomes so
  CUcontext context = nullptr;
  SlicedBytes bytes;                  ///< of the slices
  const OwnLink* own_link = nullptr;  ///< not null: no kernel runs on the target
  uint64_t own_bytes = 0;             ///< for it
  YieldPolicy yield_policy;
  DirectPath direct;
  std::span<const RelayPath> relays;  ///< one channel each
};

/// Enqueues the whole transfer: kAccelerated. kDriverError: nothing that moves bytes was enqueued.
/// kFailed: the driver has refused one of the last steps, which may not fail, or the own link's
/// copies: the stream then still waits for what is under way. If a relay cannot be launched, its
/// blocks are launched where others are, and find nothing left. If that fails too, the state is
/// retired. The caller's current context does not change.
Enqueued enqueue_kernels(const cuda::Driver& driver, const KernelJob& job, TransferState& state);

}  // namespace braid::multipath
