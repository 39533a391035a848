// The CUDA driver, if this process has loaded it already: otherwise the process has no GPU memory.
// The fabric neither links nor loads the driver.
#pragma once

#include "cuda/driver.h"

namespace braid::fabric::gpu {

/// Null: the process has not loaded the driver so far. From any thread; never freed.
const cuda::Driver* process_driver();

}  // namespace braid::fabric::gpu
