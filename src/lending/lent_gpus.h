// Which GPUs of this process are lent (visible_devices.h): decided when the driver starts, the same
// ever after.
#pragma once

#include <cuda.h>

namespace braid::lending {

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

/// The driver's own functions, and who tells the user why no GPU is lent.
struct DriverStart {
  CUresult (*init)(unsigned flags);
  CUresult (*count_gpus)(int* count);
  void (*say)(const char* message) noexcept;
};

/// cuInit, called from `caller`: starts the driver, with more GPUs if they are to be lent.
CUresult start_driver(const DriverStart& driver, unsigned flags, const void* caller) noexcept;

}  // namespace braid::lending
