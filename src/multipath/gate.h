// How the program's stream and braid's channels wait for each other: by words of memory that
// streams write and wait for. The driver enqueues these operations without any context's lock, and
// they execute without the CPU (docs/architecture.md, "The law").
#pragma once

#include <span>

#include "cuda/driver.h"
#include "multipath/relay.h"
#include "multipath/transfer_state.h"

namespace braid::multipath {

/// The program's stream signals that it has come so far: the transfer's channels may begin.
CUresult signal_begun(const cuda::Driver& driver, TransferState& state, CUstream stream);

/// The channel waits until the transfer's stream has come so far.
CUresult wait_begun(const cuda::Driver& driver, const TransferState& state, Channel& channel);

/// The channel signals that all work enqueued in it so far has landed.
CUresult signal_landed(const cuda::Driver& driver, Channel& channel);

/// The program's stream waits until all slices have landed, and then signals that nothing of it
/// waits for the counters: a stream may look at them long after the last kernel has left, and they
/// must be there then. `flags`: how it waits.
CUresult wait_done(const cuda::Driver& driver, TransferState& state, CUstream stream,
                   unsigned flags);

/// The program's stream waits until all the transfer's channels have landed.
CUresult wait_landed(const cuda::Driver& driver, const TransferState& state, CUstream stream);

/// The same by events, for channels whose word the driver has refused. Needs the locks of the
/// contexts involved.
CUresult wait_by_events(const cuda::Driver& driver, std::span<const ChannelUse> channels,
                        CUstream stream);

}  // namespace braid::multipath
