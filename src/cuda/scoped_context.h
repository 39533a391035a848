// Makes a context current for a scope, and puts the caller's back. Work that is meant for one
// context must not be done in another: see that `enter` succeeded, or `status` after the second
// constructor.
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

  /// Nothing is entered that could not be left again.
  CUresult enter(CUcontext context) {
    if (!is_known_) return status_;
    status_ = context == current_ ? CUDA_SUCCESS : driver_.cuCtxSetCurrent(context);
    if (status_ == CUDA_SUCCESS) current_ = context;
    return status_;
  }

  /// Back to the caller's. A thread that is left in another context does its next work on the wrong
  /// GPU, so a refusal is not taken at once.
  void leave() {
    if (is_known_ && enter(before_) != CUDA_SUCCESS) enter(before_);
  }

  /// Of the latest `enter`.
  CUresult status() const { return status_; }

 private:
  const Driver& driver_;
  CUcontext before_ = nullptr;
  CUresult status_;
  CUcontext current_;
  bool is_known_ = false;
};

}  // namespace braid::cuda
