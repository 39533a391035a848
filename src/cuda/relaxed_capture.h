// While a thread records a graph, it may not allocate, free, or change a pool's access, in any
// stream. If the graph is recorded in Global mode, no thread may (docs/measurements,
// 2026-11-22-2xH200-probes, has the list). Such a call spoils the graph, unless the thread is in
// relaxed mode: this scope.
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
