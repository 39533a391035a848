// What the two addresses of a copy are, asked of the driver. Takes under a quarter of a
// microsecond, allocates nothing.
#pragma once

#include "cuda/driver.h"
#include "multipath/transfer.h"

namespace braid::multipath {

struct Classification {
  Verdict verdict = Verdict::kAccelerated;  ///< kAccelerated: both ends can be carried
  CUcontext context = nullptr;              ///< that the device memory belongs to
};

/// kPageable when the host end is not wholly inside one pinned allocation or registration;
/// kNotLinear when the device end is not wholly inside one allocation of plain device memory:
/// managed memory, stream-ordered pools, virtual memory management and imported memory map for
/// chosen GPUs only.
Classification classify(const cuda::Driver& driver, const Transfer& transfer);

/// Pageable host memory at one end (all of it, or a part beside pinned memory), and at the other
/// device memory of any kind but managed: the driver, and not braid, decides who may reach it.
bool is_pageable_copy(const cuda::Driver& driver, const Transfer& transfer);

}  // namespace braid::multipath
