// A thread that records a graph may make no allocation, ask for the end of nothing and for no
// access to a pool, in whatever stream; if the graph is recorded in Global mode, no thread may
// (docs/measurements, 2026-11-22-2xH200-probes, has the list).
// Who does so spoils the graph, unless it has said that it knows what it is doing: as this scope.
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
