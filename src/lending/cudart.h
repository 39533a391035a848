// The hooks on CUDA's runtime library (cudart_hooks.h). The process may have loaded several
// runtimes. A linked call goes on to the runtime that its caller would have been bound to; a
// pointer from dlsym goes on to the runtime that it was found in. Without lending every call is
// passed on unchanged.
#pragma once

#include "lending/cudart_hooks.h"

namespace braid::lending {

/// braid's export, which the global scope finds before any runtime's.
void* cudart_export(CudartHookId hook);

/// The runtime's function that code at `caller` would find by name without braid's export. Null:
/// none.
void* cudart_behind(CudartHookId hook, const void* caller) noexcept;

/// The function to hand out instead of `found`, a function of this name: a hook that passes calls
/// on to `found`, or `found` itself if this process never lends.
void* cudart_hook_before(CudartHookId hook, void* found) noexcept;

}  // namespace braid::lending
