// The life of contexts, shared by primary contexts and those that cuCtxCreate makes.
#pragma once

#include "emulator/api/entry.h"

namespace braid::emulator {

/// Makes the context alive, with its legacy stream. CUDA_ERROR_OUT_OF_MEMORY when its GPU is full.
CUresult revive(Call& call, Context& context, unsigned flags);

/// Waits for its work as long as that goes on by itself, gives up the rest, and destroys all that
/// belongs to it. The handle stays known, as that of a destroyed context.
void destroy(Call& call, const ContextPtr& context);

/// Waits until all that is in the context's streams now has ended; with the context's lock, if the
/// call is one of those that hold it (model/context_lock.h).
void wait_for_context(Call& call, const ContextPtr& context);
/// The same for all contexts, without their locks.
void wait_for_everybody(Call& call);

bool known_context_flags(unsigned flags);

}  // namespace braid::emulator
