// One descriptor that becomes readable when any of many does, or when a time has passed. Not
// synchronised.
#pragma once

#include <sys/epoll.h>
#include <sys/timerfd.h>

#include <cstdint>
#include <ctime>
#include <utility>

#include "host/file.h"

namespace braid::fabric::local {

/// While it lives, a descriptor wakes a Waker. It ends before the descriptor and the Waker do: a
/// child process may keep the descriptor's file open, which would then go on waking.
class Watch {
 public:
  Watch() = default;
  Watch(int waker, int descriptor) : waker_(waker), descriptor_(descriptor) {
    epoll_event event{};
    event.events = EPOLLIN;
    epoll_ctl(waker_, EPOLL_CTL_ADD, descriptor_, &event);
  }
  ~Watch() {
    if (waker_ >= 0) epoll_ctl(waker_, EPOLL_CTL_DEL, descriptor_, nullptr);
  }
  Watch(Watch&& other) noexcept
      : waker_(std::exchange(other.waker_, -1)), descriptor_(other.descriptor_) {}
  Watch& operator=(Watch&& other) noexcept {
    std::swap(waker_, other.waker_);
    std::swap(descriptor_, other.descriptor_);
    return *this;
  }

 private:
  int waker_ = -1;  // -1: it watches nothing
  int descriptor_ = -1;
};

class Waker {
 public:
  Waker()
      : events_(epoll_create1(EPOLL_CLOEXEC)),
        timer_(timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC)),
        watched_timer_(watch(timer_.get())) {}

  /// -1: this process may open no more descriptors.
  int descriptor() const { return timer_.is_open() ? events_.get() : -1; }
  Watch watch(int descriptor) const { return {events_.get(), descriptor}; }
  void wake_in(uint64_t ns) {
    set_timer(ns);
    is_timed_ = true;
  }
  void cancel() {
    if (std::exchange(is_timed_, false)) set_timer(0);
  }

 private:
  void set_timer(uint64_t ns) const {
    itimerspec after{};
    after.it_value.tv_nsec = static_cast<long>(ns);
    timerfd_settime(timer_.get(), 0, &after, nullptr);
  }

  File events_;  // an epoll
  File timer_;
  Watch watched_timer_;
  bool is_timed_ = false;
};

}  // namespace braid::fabric::local
