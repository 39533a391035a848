// An engine that several threads use. Whoever waits drives it; while nobody does, a thread of its
// own looks for what peers have written. When nothing happens it sleeps until the rails'
// descriptors or a deadline wake it; where a rail has no descriptor, or a word is watched, it looks
// now and then. Callbacks run on another thread (events.h), which holds no lock meanwhile.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
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
#include "fabric/library/sleep.h"
#include "fabric/library/watchers.h"
#include "topology/machine.h"

namespace braid::fabric {

class Service {
 public:
  static Result<std::unique_ptr<Service>> open(const ServiceOptions& options,
                                               const topology::Machine& machine,
                                               const std::vector<topology::Nic>& nics);
  /// Requests that have had no event are cancelled. Within a callback, their callbacks come after
  /// it; otherwise they have returned.
  ~Service();

  /// As Engine::add_region, if regions of this engine may be such memory.
  Result<uint64_t> add_region(MutableBytes memory);
  /// As Engine::remove_region. Of the last region of a context of the program's, it waits until
  /// nothing is left of braid's in that context: the driver waits for the context's streams.
  Status remove_region(uint64_t region);

  /// `call(engine)` alone.
  template <typename Call>
  auto with(const Call& call) {
    const std::lock_guard lock(mutex_);
    if constexpr (std::is_void_v<decltype(call(*engine_))>) {
      call(*engine_);
      follow_up();
    } else {
      auto answer = call(*engine_);
      follow_up();
      return answer;
    }
  }

  /// Until `is_so(engine)`. False: the limit has passed, or the service ends.
  bool wait(uint64_t limit_us, const std::function<bool(Engine&)>& is_so);

  /// `ask(engine, request)` asks the engine to be told; what it is told goes to `sink`.
  Status ask(const Sink& sink, const std::function<Status(Engine&, uint64_t)>& ask);
  Events& events() { return *events_; }
  const RailChoice& rails() const { return rails_; }

  Watchers::Added watch(std::unique_ptr<Word> word, const Sink& sink);
  /// Its callback has returned, unless this is called within it, and is called no more.
  Status release(uint64_t watcher);

  /// Its end has begun: a callback that runs is to call nothing more.
  bool is_ending() const { return drivers_.is_ending; }

 private:
  /// Whoever asked to be told.
  struct Request {
    Sink sink;
    std::shared_ptr<Merged> messages;  // of a request about messages
  };

  Service(RailChoice rails, std::unique_ptr<Engine> engine, std::unique_ptr<Events> events);
  void take_leave();
  void work();
  void rest(std::unique_lock<std::mutex>& lock);
  bool step();
  void follow_up();
  void deliver();
  void deliver(const Happening& happening);

  const RailChoice rails_;
  bool has_gpu_memory_ = false;
  std::mutex mutex_;
  std::unique_ptr<Engine> engine_;                                     // under the mutex
  SlotMap<Request> requests_;                                          // under the mutex
  std::unordered_map<uint64_t, std::shared_ptr<gpu::LaneEnd>> lanes_;  // by region, under it too
  Watchers watchers_;                                                  // under the mutex
  std::unique_ptr<Events> events_;
  std::vector<int> descriptors_;  // that wake the thread; empty: a rail has none
  Sleep sleep_;
  Drivers drivers_;
  std::thread thread_;
};

}  // namespace braid::fabric
