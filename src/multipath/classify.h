// What the addresses of a copy are, asked of the driver. A contiguous copy takes under a quarter of
// a microsecond; the segments of a batch cost a comparison each while they stay in the few
// allocations that were asked about last. Allocates nothing.
#pragma once

#include "cuda/driver.h"
#include "multipath/transfer.h"

namespace braid::multipath {

struct Classification {
  Verdict verdict = Verdict::kAccelerated;  ///< kAccelerated: both ends can be carried
  CUcontext context = nullptr;              ///< that the device memory belongs to
};

/// kPageable when the host end of a segment is not wholly inside one pinned allocation or
/// registration; kNotLinear when a device end is not wholly inside one allocation of plain device
/// memory: managed memory, stream-ordered pools, virtual memory management and imported memory map
/// for chosen GPUs only. All device ends must lie in one context (kForeignContext).
Classification classify(const cuda::Driver& driver, const Batch& batch);

/// Pageable host memory at one end (all of it, or a part beside pinned memory), and at the other
/// device memory of any kind but managed: the driver, and not braid, decides who may reach it.
bool is_pageable_copy(const cuda::Driver& driver, const Transfer& transfer);

}  // namespace braid::multipath
