// A thread is cancelled (pthread_cancel) at a cancellation point, and then its frames are unwound.
#pragma once

#include <pthread.h>

namespace braid::preload {

/// While it lives, the thread cannot be cancelled: the cancellation would unwind braid's frames. It
/// comes at the thread's next cancellation point.
class UncancelledScope {
 public:
  UncancelledScope() noexcept { pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before_); }
  ~UncancelledScope() { pthread_setcancelstate(before_, nullptr); }
  UncancelledScope(const UncancelledScope&) = delete;
  UncancelledScope& operator=(const UncancelledScope&) = delete;

 private:
  int before_ = PTHREAD_CANCEL_ENABLE;
};

}  // namespace braid::preload
