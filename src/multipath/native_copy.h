// The driver's own copy, over the link of the GPU where the memory lies.
#pragma once

#include "cuda/driver.h"
#include "multipath/transfer.h"

namespace braid::multipath {

/// Makes a linear copy.
CUresult copy_natively(const cuda::Driver& driver, const Batch& linear);

}  // namespace braid::multipath
