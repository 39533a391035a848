// Questions to the driver that several places ask.
#pragma once

#include "cuda/driver.h"

namespace braid::cuda {

/// True if the device's primary context is active.
inline bool has_primary_context(const Driver& driver, CUdevice device) {
  unsigned flags = 0;
  int is_active = 0;
  return driver.cuDevicePrimaryCtxGetState(device, &flags, &is_active) == CUDA_SUCCESS &&
         is_active != 0;
}

/// True if the stream records a graph, or if the driver does not answer.
inline bool is_capturing(const Driver& driver, CUstream stream) {
  CUstreamCaptureStatus capture = CU_STREAM_CAPTURE_STATUS_NONE;
  return driver.cuStreamIsCapturing(stream, &capture) != CUDA_SUCCESS ||
         capture != CU_STREAM_CAPTURE_STATUS_NONE;
}

}  // namespace braid::cuda
