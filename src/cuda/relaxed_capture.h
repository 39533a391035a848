// Other threads may be recording a graph in Global mode, which forbids allocations and event
// queries in every thread that has not said that it knows what it is doing. In this scope, it has.
#pragma once

#include "cuda/driver.h"

namespace braid::cuda {

class RelaxedCapture {
 public:
  explicit RelaxedCapture(const Driver& driver) : driver_(driver) {
    is_relaxed_ = driver_.cuThreadExchangeStreamCaptureMode(&mode_) == CUDA_SUCCESS;
  }
  ~RelaxedCapture() {
    if (is_relaxed_ && driver_.cuThreadExchangeStreamCaptureMode(&mode_) != CUDA_SUCCESS)
      driver_.cuThreadExchangeStreamCaptureMode(&mode_);  // the mode is the program's
  }
  RelaxedCapture(const RelaxedCapture&) = delete;
  RelaxedCapture& operator=(const RelaxedCapture&) = delete;

 private:
  const Driver& driver_;
  CUstreamCaptureMode mode_ = CU_STREAM_CAPTURE_MODE_RELAXED;
  bool is_relaxed_ = false;
};

}  // namespace braid::cuda
