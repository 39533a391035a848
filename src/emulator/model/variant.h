// What no profile says of a driver or a GPU, and tests choose: environment variables of the
// emulated server alone.
#pragma once

#include <cuda.h>

#include <vector>

namespace braid::emulator {

struct Variant {
  /// By the server's number of a GPU; those after the last are in the default mode. No context can
  /// be made on a GPU in prohibited mode. EMULATED_COMPUTE_MODES="0,3,2": as in cuda.h.
  std::vector<CUcomputemode> compute_modes;
  /// The calls that set access wait for the streams of the current context, as cuCtxSynchronize
  /// does. No driver is known to do that: with 2xH100 and driver 580.159.04, these calls waited
  /// neither for a held stream nor for a context's lock. EMULATED_SETTING_ACCESS_WAITS=1.
  bool setting_access_waits = false;

  CUcomputemode compute_mode_of(int gpu) const {
    const auto index = static_cast<size_t>(gpu);
    return index < compute_modes.size() ? compute_modes[index] : CU_COMPUTEMODE_DEFAULT;
  }
};

/// As the environment says.
Variant read_variant();

}  // namespace braid::emulator
