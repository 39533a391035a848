// The CUDA driver that this process has loaded already, if it has: memory of a GPU is nowhere else.
// The fabric neither links nor loads it.
#pragma once

#include "cuda/driver.h"

namespace braid::fabric::gpu {

/// Null: the process has no driver so far. From any thread; never freed.
const cuda::Driver* process_driver();

}  // namespace braid::fabric::gpu
