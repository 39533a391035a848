// What ops that touch memory find out only when they run.
#pragma once

#include "emulator/ops/ops.h"

namespace braid::emulator {

/// The op touched memory that it may not: poisons the context of its stream.
void fault(World& world, const OpPtr& op);

/// The end's allocation is still the one that the call saw.
bool still_there(World& world, const CopyEnd& end);

}  // namespace braid::emulator
