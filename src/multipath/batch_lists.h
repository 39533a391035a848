// Batches as slice lists in a target's ring.
#pragma once

#include <cstdint>
#include <span>

#include "multipath/list_ring.h"
#include "multipath/transfer.h"

namespace braid::multipath {

/// Room for the lists of the batch, of which `state.bytes` has the size. It is that of the state's
/// present use until its kernels have left. Chooses `state.bytes.slice_bytes`: `asked_slice_bytes`,
/// or by the batch's size if that is 0; more if the ring is too small for so many slices. Empty:
/// there is no room now. Whatever guards the ring guards this call.
std::span<cuda::SliceList> take_lists(ListRing& ring, const Batch& batch,
                                      uint64_t asked_slice_bytes, TransferState& state);

/// Writes the lists of the batch, less its first `skip_bytes`, into that room, and describes them
/// in `bytes`.
void write_lists(const Batch& batch, std::span<cuda::SliceList> room, SlicedBytes& bytes,
                 uint64_t skip_bytes = 0);

}  // namespace braid::multipath
