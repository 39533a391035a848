// Batches as slices: turns segments into lists of pieces that pull kernels read (pull.h,
// SliceList). Balanced by bytes: small segments share a slice, large ones are cut. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "cuda/kernels/pull.h"
#include "multipath/transfer.h"

namespace braid::multipath {

/// At least as many lists as `fill_slice_lists` needs for this batch.
size_t slice_list_bound(size_t segments, uint64_t size_bytes, uint32_t slice_bytes);

/// The result of fill_slice_lists.
struct SliceLists {
  uint32_t count = 0;
  bool aligned_alike = true;  ///< every piece has the same alignment modulo 16 at both ends
};

/// Writes the batch as lists of at most `slice_bytes` each. Neighbours that continue each other at
/// both ends become one piece. `lists` has room for slice_list_bound of them. The first
/// `skip_bytes` are left out.
SliceLists fill_slice_lists(const Batch& batch, uint32_t slice_bytes,
                            std::span<cuda::SliceList> lists, uint64_t skip_bytes = 0);

}  // namespace braid::multipath
