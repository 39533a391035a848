// A thread of the program's that holds a context's lock, since it waits for a stream there.
#pragma once

#include <unistd.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "support/asleep.h"
#include "support/server.h"

namespace braid::test {

class LockHolder {
 public:
  /// Frees `memory`, of the context, in which something is held back: until that goes on.
  LockHolder(const cuda::Driver& driver, CUcontext context, CUdeviceptr memory)
      : thread_([&driver, context, memory, this] {
          driver.cuCtxSetCurrent(context);
          number_ = gettid();
          driver.cuMemFree(memory);
          has_ended_ = true;
        }) {
    while (number_ == 0) std::this_thread::yield();
    std::this_thread::sleep_for(std::chrono::milliseconds(100));  // until it is in the driver
    wait_until_asleep(number_);
  }
  ~LockHolder() { thread_.join(); }
  LockHolder(const LockHolder&) = delete;
  LockHolder& operator=(const LockHolder&) = delete;
  bool has_ended() const { return has_ended_; }

 private:
  std::atomic<pid_t> number_{0};
  std::atomic<bool> has_ended_{false};
  std::thread thread_;
};

}  // namespace braid::test
