// The hooks on CUDA's runtime library (cudart_hooks.h). Each runtime that the process has loaded is
// answered by itself: a linked call by the one that its caller would have been bound to, a pointer
// from dlsym by the one that it was found in. Without lending every call is passed on as it is.
#pragma once

#include "lending/cudart_hooks.h"

namespace braid::lending {

/// braid's export, which the global scope finds before any runtime's.
void* cudart_export(CudartHookId hook);

/// The runtime's function that code at `caller` would find by name, were it not for braid's export.
/// Null: none.
void* cudart_behind(CudartHookId hook, const void* caller) noexcept;

/// What to hand out for `found`, a function of this name: a hook that passes on to just that one,
/// or itself when nothing is ever lent in this process.
void* cudart_hook_before(CudartHookId hook, void* found) noexcept;

}  // namespace braid::lending
