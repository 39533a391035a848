// Makes a context current for a scope, and puts the caller's back.
#pragma once

#include "cuda/driver.h"

namespace braid::cuda {

class ScopedContext {
 public:
  /// Remembers the current context; `enter` changes it, as often as needed.
  explicit ScopedContext(const Driver& driver) : driver_(driver) {
    driver_.cuCtxGetCurrent(&before_);
    current_ = before_;
  }
  ScopedContext(const Driver& driver, CUcontext context) : ScopedContext(driver) { enter(context); }
  ~ScopedContext() { enter(before_); }
  ScopedContext(const ScopedContext&) = delete;
  ScopedContext& operator=(const ScopedContext&) = delete;

  CUresult enter(CUcontext context) {
    if (context == current_) return CUDA_SUCCESS;
    const CUresult result = driver_.cuCtxSetCurrent(context);
    if (result == CUDA_SUCCESS) current_ = context;
    return result;
  }

  CUcontext before() const { return before_; }

 private:
  const Driver& driver_;
  CUcontext before_ = nullptr;
  CUcontext current_ = nullptr;
};

}  // namespace braid::cuda
