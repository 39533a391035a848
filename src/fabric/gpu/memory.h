// Tells GPU memory from host memory, and finds the lane that copies from and to it.
#pragma once

#include <memory>

#include "base/status.h"
#include "fabric/gpu/lane.h"

namespace braid::fabric::gpu {

/// Null: it is host memory; managed memory counts as such. An error if it begins in an allocation
/// on a GPU, and reaches beyond it. Asks the driver, which needs no lock for it.
Result<std::shared_ptr<Lane>> lane_of_memory(MutableBytes memory);

}  // namespace braid::fabric::gpu
