// Checks of ops that touch memory, made when they run.
#pragma once

#include "emulator/ops/ops.h"

namespace braid::emulator {

/// The op touched memory that it may not: a GPU fault in the context of its stream.
void fault(World& world, const OpPtr& op);

/// CUDA ordinal of the context of the op's stream.
int device_of(const OpPtr& op);

/// True if the end's allocation is still the one that the call saw, and the op may touch the rows.
bool may_touch(World& world, const OpPtr& op, const CopyEnd& end, const Extent& extent,
               Access access);

}  // namespace braid::emulator
