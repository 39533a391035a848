// The GPUs of this process that are lent (visible_devices.h). They are decided when the driver
// starts, and never change.
#pragma once

#include <cuda.h>

namespace braid::lending {

/// Whether `braid run --lend` has started this process or an ancestor of it.
bool may_lend() noexcept;

/// True once cuInit has succeeded: the lent GPUs are known.
bool is_lending_decided() noexcept;

/// How many GPUs the program has. INT_MAX while none is lent.
int own_gpus() noexcept;

/// True for numbers from own_gpus() on.
bool is_lent(int gpu) noexcept;

/// The same number; for a lent GPU, the first number that no GPU has.
int hide_lent(int gpu) noexcept;

/// The driver's own functions, and a function that tells the user why no GPU is lent.
struct DriverStart {
  CUresult (*init)(unsigned flags);
  CUresult (*count_gpus)(int* count);
  void (*say)(const char* message) noexcept;
};

/// cuInit, called from `caller`: starts the driver, with more GPUs if they are to be lent.
CUresult start_driver(const DriverStart& driver, unsigned flags, const void* caller) noexcept;

}  // namespace braid::lending
