// The end of a piece of work: whether and when it has come, and its waiters.
#pragma once

#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "emulator/model/time.h"

namespace braid::emulator {

class Completion {
 public:
  bool done() const { return done_; }
  Time when() const { return when_; }

  /// Runs `action` when the work ends, or at once if it has ended.
  void then(std::function<void()> action) {
    if (done_) return action();
    waiting_.push_back(std::move(action));
  }
  void complete(Time when) {
    if (done_) return;
    done_ = true;
    when_ = when;
    const std::vector<std::function<void()>> waiting = std::move(waiting_);
    for (const auto& action : waiting) action();
  }

 private:
  bool done_ = false;
  Time when_ = 0;
  std::vector<std::function<void()>> waiting_;
};

using CompletionPtr = std::shared_ptr<Completion>;

}  // namespace braid::emulator
