// The GPUs that the program sees: all that the driver shows, except those that are lent to braid
// (lending/lent_gpus.h).
#pragma once

#include <cuda.h>

namespace braid::preload {

/// The device to pass to the driver when the program names `device`. It is the same number, except
/// for a lent GPU: then the first number that no GPU has, so that the driver gives its own answer
/// to that mistake. Calls from inside braid, and of CUDA's runtime library while it starts, may
/// name every GPU.
CUdevice as_program_sees(CUdevice device) noexcept;

/// The same for a call that makes or retains the device's context.
CUdevice to_make_context_on(CUdevice device) noexcept;

}  // namespace braid::preload
