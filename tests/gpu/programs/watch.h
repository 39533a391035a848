// A hang is an exit code, and has a name.
#pragma once

#include <chrono>
#include <mutex>

#include "program.h"

namespace program {

constexpr int kHangExitCode = 9;

inline double now_ms() {
  const auto since = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration<double, std::milli>(since).count();
}

/// Ends the process when one step takes too long, its end included.
class Watch {
 public:
  static Watch& of_process() {
    static Watch& only = *new Watch;  // its thread runs until the process ends
    return only;
  }

  void begin(const std::string& step, double limit_ms) {
    const std::lock_guard<std::mutex> lock(mutex_);
    step_ = step;
    end_ms_ = now_ms() + limit_ms;
  }

 private:
  Watch() {
    std::thread([this] { guard(); }).detach();
  }

  void guard() {
    for (;; sleep_ms(50)) {
      const std::lock_guard<std::mutex> lock(mutex_);
      if (end_ms_ == 0 || now_ms() < end_ms_) continue;
      std::fflush(stdout);
      std::fprintf(stderr, "hang: %s\n", step_.c_str());
      std::_Exit(kHangExitCode);
    }
  }

  std::mutex mutex_;
  std::string step_;
  double end_ms_ = 0;
};

}  // namespace program
