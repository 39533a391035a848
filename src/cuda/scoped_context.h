// Makes a context current for a scope, and restores the caller's. Work for one context must not be
// done in another: check the result of `enter`, or `status` after the second constructor.
#pragma once

#include "cuda/driver.h"

namespace braid::cuda {

class ScopedContext {
 public:
  /// Remembers the current context; `enter` changes it, as often as needed.
  explicit ScopedContext(const Driver& driver)
      : driver_(driver), status_(driver.cuCtxGetCurrent(&before_)), current_(before_) {
    is_known_ = status_ == CUDA_SUCCESS;
  }
  ScopedContext(const Driver& driver, CUcontext context) : ScopedContext(driver) { enter(context); }
  ~ScopedContext() { leave(); }
  ScopedContext(const ScopedContext&) = delete;
  ScopedContext& operator=(const ScopedContext&) = delete;

  /// Enters no context that it could not leave again.
  CUresult enter(CUcontext context) {
    if (!is_known_) return status_;
    status_ = context == current_ ? CUDA_SUCCESS : driver_.cuCtxSetCurrent(context);
    if (status_ == CUDA_SUCCESS) current_ = context;
    return status_;
  }

  /// Restores the caller's context. A thread left in another context would do its next work on the
  /// wrong GPU, so a refusal is tried again.
  void leave() {
    if (is_known_ && enter(before_) != CUDA_SUCCESS) enter(before_);
  }

  /// The result of the latest `enter`.
  CUresult status() const { return status_; }

 private:
  const Driver& driver_;
  CUcontext before_ = nullptr;
  CUresult status_;
  CUcontext current_;
  bool is_known_ = false;
};

}  // namespace braid::cuda
