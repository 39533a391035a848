// Which GPUs the program gets to see: all that the driver shows, but for those that are lent to
// braid (lending/lent_gpus.h).
#pragma once

#include <cuda.h>

namespace braid::preload {

/// The device to name to the driver when the program names `device`: the same, but for a lent GPU
/// the first number that no GPU has, so that the driver gives its own answer to that mistake. Calls
/// from inside braid name every GPU, and those of CUDA's runtime library while it starts.
CUdevice as_program_sees(CUdevice device) noexcept;

/// The same for a call that makes the device's context, or holds it.
CUdevice to_make_context_on(CUdevice device) noexcept;

}  // namespace braid::preload
