// Which GPUs of this process are lent (lend.h): decided when the driver starts, the same ever
// after.
#pragma once

#include <cuda.h>

namespace braid::preload {

/// Whether `braid run --lend` has started this process or one that it comes from.
bool may_lend() noexcept;

/// cuInit has succeeded: from now on it is known what is lent.
bool is_lending_decided() noexcept;

/// How many GPUs the program has. INT_MAX while none is lent.
int own_gpus() noexcept;

/// Numbers from own_gpus() on.
bool is_lent(int gpu) noexcept;

/// The same number, but for a lent GPU the first that no GPU has.
int hide_lent(int gpu) noexcept;

/// cuInit, called from `caller`: starts the driver, with more GPUs if they are to be lent.
CUresult start_driver(CUresult (*native)(unsigned), unsigned flags, const void* caller) noexcept;

}  // namespace braid::preload
