// A thread of the program's that holds a context's lock, since it waits for a stream there.
#pragma once

#include <atomic>
#include <thread>

#include "support/asleep.h"
#include "support/server.h"

namespace braid::test {

class LockHolder {
 public:
  /// Frees `memory`, of the context, in which something is held back: until that goes on.
  LockHolder(const cuda::Driver& driver, CUcontext context, CUdeviceptr memory)
      : thread_(waiting_thread([&driver, context, memory, this] {
          driver.cuCtxSetCurrent(context);
          driver.cuMemFree(memory);
          has_ended_ = true;
        })) {}
  ~LockHolder() { thread_.join(); }
  LockHolder(const LockHolder&) = delete;
  LockHolder& operator=(const LockHolder&) = delete;
  bool has_ended() const { return has_ended_; }

 private:
  std::atomic<bool> has_ended_{false};
  std::thread thread_;
};

}  // namespace braid::test
