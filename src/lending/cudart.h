// The hooks on CUDA's runtime library (cudart_hooks.h). Each runtime that the process has loaded is
// answered by itself: a linked call by the one that its caller would have been bound to, a pointer
// from dlsym by the one that it was found in. Without lending every call is passed on as it is.
#pragma once

#include <link.h>

#include "preload/cudart_hooks.h"

namespace braid::preload {

/// braid's export, which the global scope finds before any runtime's.
void* cudart_export(CudartHookId hook);

/// The runtime's function that code at `caller` would find by name, were it not for braid's export.
/// Null: none.
void* cudart_behind(CudartHookId hook, const void* caller) noexcept;

/// What to hand out for `found`, a function of this name: a hook that passes on to just that one,
/// or itself when nothing is ever lent in this process.
void* cudart_hook_before(CudartHookId hook, void* found) noexcept;

/// Whether a runtime in this module is found by name, so that hooks can stand before it.
bool exports_cudart(const link_map& module) noexcept;

}  // namespace braid::preload
