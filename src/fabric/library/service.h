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
#include "topology/machine.h"

namespace braid::fabric {

struct ServiceOptions {
  std::string provider = {};                ///< empty: the first that is here
  std::vector<std::string> addresses = {};  ///< one for each rail; none: by `nics`
  std::string nics = {};  ///< see rail_choice.h; empty: kNicsVariable, or else loopback
  bool is_pinned = true;  ///< memory and thread on the rails' NUMA node, if there are several
};

class Service {
 public:
  static Result<std::unique_ptr<Service>> open(const ServiceOptions& options,
                                               const topology::Machine& machine,
                                               const std::vector<topology::Nic>& nics);
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
