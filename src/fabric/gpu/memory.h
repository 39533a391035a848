// Which memory is a GPU's, and which lane copies from and to it.
#pragma once

#include <memory>

#include "base/status.h"
#include "fabric/gpu/lane.h"

namespace braid::fabric::gpu {

/// Null: it is host memory (managed memory is, too). An error if it is part of an allocation on a
/// GPU, and reaches beyond that. Asks the driver, which needs no lock for it.
Result<std::shared_ptr<Lane>> lane_of_memory(MutableBytes memory);

}  // namespace braid::fabric::gpu
