#include "multipath/relay_watch.h"

#include <unistd.h>

#include <utility>

namespace braid::multipath {
namespace {

// Most transfers end before the first look; one that waits for ever does not mind a few.
constexpr uint64_t kLookNs = 50'000'000;

}  // namespace

RelayWatch::RelayWatch(const cuda::Driver& driver, Look look)
    : driver_(driver), look_(std::move(look)), pid_(getpid()) {}

void RelayWatch::close() {
  if (getpid() != pid_) return;
  {
    const std::lock_guard lock(mutex_);
    if (stops_ || !thread_.has_started()) return;
    stops_ = true;
    wake();
  }
  thread_.join();
}

void RelayWatch::begin() noexcept {
  if (!is_resting_.load() || getpid() != pid_) return;
  const std::lock_guard lock(mutex_);
  if (!thread_.has_started()) {
    driver_.clock->hold();  // the thread is started under it, and gives it back
    if (!thread_.start([](void* self) { static_cast<RelayWatch*>(self)->run(); }, this)) {
      driver_.clock->release();
      return;
    }
  }
  wake();
}

// Under the lock.
void RelayWatch::wake() {
  if (!is_resting_) return;
  driver_.clock->hold();
  is_resting_ = false;
  is_resting_.notify_one();
}

bool RelayWatch::stops() {
  const std::lock_guard lock(mutex_);
  return stops_;
}

void RelayWatch::run() {
  driver_.clock->release();
  is_resting_.wait(true);
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
  driver_.cuThreadExchangeStreamCaptureMode(&mode);
  while (!stops()) {
    driver_.clock->sleep_ns(kLookNs);
    if (!look_(driver_.clock->now_ns())) rest();
  }
  driver_.clock->release();
}

// A transfer that began after the look has found the watch awake: so it looks again when it no
// longer is.
void RelayWatch::rest() {
  {
    const std::lock_guard lock(mutex_);
    if (stops_) return;
    is_resting_ = true;
  }
  if (look_(driver_.clock->now_ns())) {
    const std::lock_guard lock(mutex_);
    if (!is_resting_.exchange(false)) driver_.clock->release();  // it has been woken, too
    return;
  }
  driver_.clock->release();
  is_resting_.wait(true);
}

}  // namespace braid::multipath
