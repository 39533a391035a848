#include "multipath/relay_watch.h"

#include <unistd.h>

#include <chrono>
#include <utility>

namespace braid::multipath {
namespace {

constexpr std::chrono::milliseconds kBetweenLooks{50};

}  // namespace

RelayWatch::RelayWatch(const cuda::Driver& driver, Look look)
    : driver_(driver), look_(std::move(look)), pid_(getpid()) {}

bool RelayWatch::start() {
  return thread_.start([](void* self) { static_cast<RelayWatch*>(self)->run(); }, this);
}

void RelayWatch::close() {
  if (getpid() != pid_ || !thread_.has_started() || stops_.exchange(true)) return;
  calls_.release();
  thread_.join();
}

void RelayWatch::begin() noexcept {
  if (is_resting_.load() && getpid() == pid_ && is_resting_.exchange(false)) calls_.release();
}

void RelayWatch::run() {
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
  driver_.cuThreadExchangeStreamCaptureMode(&mode);
  rest();
  while (!stops_) {
    if (calls_.try_acquire_for(kBetweenLooks)) return;  // it is `close` that calls
    if (!look_(system_clock().now_ns())) rest();
  }
}

// A transfer that began after the look has found the watch awake: so it looks again once it no
// longer is.
void RelayWatch::rest() {
  is_resting_ = true;
  const bool is_any_under_way = look_(system_clock().now_ns());
  if (!is_any_under_way || !is_resting_.exchange(false)) calls_.acquire();
}

}  // namespace braid::multipath
