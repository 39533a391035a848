// Binds the process to the driver that the program has loaded.
#pragma once

#include <cuda.h>

#include "preload/hooks.h"
#include "preload/reporter.h"

namespace braid::preload {

/// Finds the driver that the program has loaded; never loads one. The first success also reads the
/// options. False if there is none yet. May be called from any thread, and before any constructor
/// has run.
bool bind() noexcept;

/// The source of this process's statistics.
StatisticsSource statistics_source() noexcept;

/// The driver's own function for a hook; null when the driver has none or is not loaded.
void* real_function(HookId hook) noexcept;

template <typename Function>
Function* real(HookId hook) noexcept {
  return reinterpret_cast<Function*>(real_function(hook));
}

/// Calls the driver's own function. The arguments have the types of the function's parameters.
template <typename... Arguments>
CUresult forward(HookId hook, Arguments... arguments) {
  auto* native = real<CUresult(Arguments...)>(hook);
  return native != nullptr ? native(arguments...) : CUDA_ERROR_NOT_INITIALIZED;
}

}  // namespace braid::preload
