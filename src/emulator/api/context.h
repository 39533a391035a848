// The life of contexts, shared by primary contexts and those that cuCtxCreate makes.
#pragma once

#include "emulator/api/entry.h"

namespace braid::emulator {

/// Makes the context alive, with its legacy stream. CUDA_ERROR_OUT_OF_MEMORY when its GPU is full.
CUresult revive(Call& call, Context& context, unsigned flags);

/// Waits for the context's work as long as that makes progress by itself, abandons the rest, and
/// destroys all its objects. The handle stays known, as that of a destroyed context.
void destroy(Call& call, const ContextPtr& context);

/// Waits until the present work in the context's streams has ended. Holds the context's lock
/// meanwhile, if the call is one that does (model/context_lock.h).
void wait_for_context(Call& call, const ContextPtr& context);
/// The same for all contexts, without their locks.
void wait_for_everybody(Call& call);

/// Call it before a kernel with this much local memory is launched in the context. The first kernel
/// that needs more than the context has set aside waits for the context's streams, as cuMemFree
/// does, and sets more aside (2xH200, driver 580.159; whether the lock is held meanwhile was not
/// measured).
CUresult set_local_memory_aside(Call& call, const ContextPtr& context, size_t local_bytes);

bool known_context_flags(unsigned flags);

}  // namespace braid::emulator
