// An engine that several threads use. A caller that waits drives the engine; while none does, the
// service's own thread drives it. When nothing happens, the thread sleeps until the rails'
// descriptors or a deadline wake it. If a rail has no descriptor, or a word is watched, the thread
// looks now and then. Callbacks run on another thread (events.h), which holds no lock meanwhile.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <type_traits>
#include <unordered_map>
#include <vector>

#include "base/clock.h"
#include "fabric/engine.h"
#include "fabric/gpu/lane.h"
#include "fabric/library/events.h"
#include "fabric/library/looks.h"
#include "fabric/library/options.h"
#include "fabric/library/rail_choice.h"
#include "fabric/library/report.h"
#include "fabric/library/watchers.h"
#include "fabric/local/shared_memory.h"
#include "fabric/sleep.h"
#include "topology/machine.h"

namespace braid::fabric {

class Service {
 public:
  static Result<std::unique_ptr<Service>> open(const ServiceOptions& options,
                                               const topology::Machine& machine,
                                               const std::vector<topology::Nic>& nics);
  /// Cancels requests that have had no event. Their callbacks have returned when this returns; if
  /// it is called within a callback, they run after that callback.
  ~Service();

  /// As Engine::add_region. An error if this engine does not take such memory.
  Result<uint64_t> add_region(MutableBytes memory);
  struct Allocated {
    void* memory = nullptr;
    uint64_t region = 0;
  };
  /// Memory of zeros and its region. Peers map it where the provider is "local" and the kernel can
  /// share memory.
  Result<Allocated> allocate_memory(size_t size_bytes);
  /// As Engine::remove_region. Frees what allocate_memory has allocated. If it is the last region
  /// of a context of the program's, this waits until braid has freed everything in that context,
  /// for which the driver waits for the context's streams.
  Status remove_region(uint64_t region);

  /// Returns `call(engine)`, which may be called in another thread. Nobody else uses the engine
  /// meanwhile.
  template <typename Call>
  auto with(const Call& call) {
    return mutex_.run([&] { return call_and_follow_up(call); });
  }
  /// The same, always in this thread: for what asks CUDA for the current context.
  template <typename Call>
  auto with_here(const Call& call) {
    return mutex_.run_here([&] { return call_and_follow_up(call); });
  }

  /// Waits until `is_so(engine)`. False: the limit has passed, or the service ends.
  template <typename IsSo>
  bool wait(uint64_t limit_us, const IsSo& is_so) {
    bool is_met = false;
    mutex_.run([&] {
      is_met = is_so(*engine_);
      // A question that changes nothing leaves nothing to do.
      if constexpr (!std::is_invocable_v<IsSo, const Engine&>)
        if (is_met) follow_up();
    });
    return is_met || wait_on(limit_us, std::cref(is_so));
  }

  /// `ask(engine, request)` makes a request of the engine, whose events go to `sink`.
  Status ask(const Sink& sink, const std::function<Status(Engine&, uint64_t)>& ask);
  Events& events() { return *events_; }
  const RailChoice& rails() const { return rails_; }
  EngineReport report();

  Result<Watchers::Added> watch(std::unique_ptr<Word> word, const Sink& sink);
  /// Afterwards its callback is called no more, and has returned, unless this is called within it.
  Status release(uint64_t watcher);

  /// The service's end has begun: a running callback can ask for nothing more.
  bool is_ending() const { return drivers_.is_ending; }

 private:
  struct Allocation {
    MappedPages own;
    std::unique_ptr<local::SharedMemory> shared;  // null: peers cannot map it
    MutableBytes bytes() const { return shared != nullptr ? shared->bytes() : own.bytes(); }
  };
  Result<Allocation> allocate(size_t size_bytes);
  /// A request for events.
  struct Request {
    Sink sink;
    std::shared_ptr<Merged> messages;  // of a request about messages
  };

  Service(RailChoice rails, std::unique_ptr<Engine> engine, std::unique_ptr<Events> events);
  template <typename Call>
  auto call_and_follow_up(const Call& call) {
    if constexpr (std::is_void_v<decltype(call(*engine_))>) {
      call(*engine_);
      follow_up();
    } else {
      auto answer = call(*engine_);
      follow_up();
      return answer;
    }
  }
  bool wait_on(uint64_t limit_us, const std::function<bool(Engine&)>& is_so);
  void take_leave();
  void work();
  void rest(Lock& lock);
  bool step(uint64_t now_ns);
  void follow_up();
  void deliver();
  void deliver(const Happening& happening);

  const RailChoice rails_;
  bool has_gpu_memory_ = false;
  bool is_local_ = false;
  int numa_node_ = -1;  // of memory that is allocated; -1: any
  DelegatingMutex mutex_;
  Unshared unshared_;                           // under it
  std::map<uint64_t, Allocation> allocations_;  // by region, under it; after the engine
  std::unique_ptr<Engine> engine_;              // under the mutex
  SlotMap<Request> requests_;                   // under the mutex
  std::unordered_map<uint64_t, std::shared_ptr<gpu::LaneEnd>> lanes_;  // by region, under it too
  Watchers watchers_;                                                  // under the mutex
  std::unique_ptr<Events> events_;
  std::vector<int> descriptors_;  // that wake the thread; empty: a rail has none
  Sleep sleep_;
  Drivers drivers_;
  std::thread thread_;
};

}  // namespace braid::fabric
