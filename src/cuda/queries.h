// Questions that are asked of the driver in several places.
#pragma once

#include "cuda/driver.h"

namespace braid::cuda {

/// The device's primary context lives.
inline bool has_primary_context(const Driver& driver, CUdevice device) {
  unsigned flags = 0;
  int is_active = 0;
  return driver.cuDevicePrimaryCtxGetState(device, &flags, &is_active) == CUDA_SUCCESS &&
         is_active != 0;
}

/// The stream records a graph; also when the driver does not say.
inline bool is_capturing(const Driver& driver, CUstream stream) {
  CUstreamCaptureStatus capture = CU_STREAM_CAPTURE_STATUS_NONE;
  return driver.cuStreamIsCapturing(stream, &capture) != CUDA_SUCCESS ||
         capture != CU_STREAM_CAPTURE_STATUS_NONE;
}

}  // namespace braid::cuda
