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

/// Before a kernel that uses so much local memory is launched in the context. The first one that
/// uses more than the context has set aside waits for its streams, as cuMemFree does, and sets more
/// aside (2xH200, driver 580.159; that the lock is held meanwhile was not measured).
CUresult set_local_memory_aside(Call& call, const ContextPtr& context, size_t local_bytes);

bool known_context_flags(unsigned flags);

}  // namespace braid::emulator
