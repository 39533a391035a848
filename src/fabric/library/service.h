// An engine that several threads use. Whoever waits drives it; while nobody does, a thread of its
// own looks for what peers have written, often when something happens, and seldom otherwise.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "fabric/engine.h"

namespace braid::fabric {

class Service {
 public:
  /// An empty provider: the first that is here.
  static Result<std::unique_ptr<Service>> open(const std::string& provider,
                                               const std::vector<std::string>& addresses);
  ~Service();

  /// `call(engine)` alone.
  template <typename Call>
  auto with(const Call& call) {
    const std::lock_guard lock(mutex_);
    return call(*engine_);
  }

  /// Until `is_so(engine)`. False: the limit has passed.
  bool wait(uint64_t limit_us, const std::function<bool(Engine&)>& is_so);

  static uint64_t now_ns();
  static uint64_t after_ns(uint64_t limit_us);

 private:
  explicit Service(std::unique_ptr<Engine> engine);
  void work();

  std::mutex mutex_;
  std::unique_ptr<Engine> engine_;  // under the mutex
  std::atomic<int> waiting_ = 0;    // callers that drive it
  std::condition_variable ended_;
  bool is_ending_ = false;  // under the mutex
  std::thread thread_;
};

}  // namespace braid::fabric
