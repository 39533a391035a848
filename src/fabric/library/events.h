// Events on their way to the program: to callbacks, which run one after the other on a thread of
// their own, or to a queue with a descriptor that is readable while it holds any.
//
// Neither way has a limit, and nobody waits to add an event: a callback that is slow holds up other
// callbacks, and nothing else. Safe for concurrent use.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "base/status.h"
#include "braid/fabric_abi.h"

namespace braid::fabric {

/// Where events of a request go.
struct Sink {
  braid_fabric_callback callback = nullptr;  ///< null: to the queue
  void* user = nullptr;
};

/// Events of one kind that the program need not see one by one: while one has not been delivered,
/// more only change what it will say.
struct Merged {
  bool is_queued = false;
  bool is_released = false;
  uint64_t told = 0;    ///< the value of the last event
  uint64_t latest = 0;  ///< what the next one will say
};

class Events {
 public:
  static Result<std::unique_ptr<Events>> open();
  /// Of what has not been delivered, callbacks get the last events of requests, as cancelled, once
  /// the callback that runs has returned. Waits for that, unless it is called within a callback.
  ~Events();
  Events(const Events&) = delete;
  Events& operator=(const Events&) = delete;

  /// Before callbacks are added: makes their thread.
  void prepare(const Sink& sink);
  /// `is_last`: of its request.
  void add(const Sink& sink, braid_fabric_event event, bool is_last);
  /// At most one of `merged` is on its way. `value` is a new one of it.
  void merge(const Sink& sink, braid_fabric_event event, const std::shared_ptr<Merged>& merged,
             uint64_t value);
  /// No event of `merged` is delivered any more. Waits for its callback, unless called within it.
  void release(const std::shared_ptr<Merged>& merged);

  /// Takes events out of the queue, oldest first. Returns how many.
  size_t take(std::span<braid_fabric_event> events);
  /// Readable while events are queued, however it is read. Owned by this object.
  int descriptor() const;

  /// This thread runs a callback of this object's.
  bool is_in_callback() const;

 private:
  struct State;
  explicit Events(std::shared_ptr<State> state) : state_(std::move(state)) {}

  std::shared_ptr<State> state_;  // shared with the thread, which may outlive this object
};

}  // namespace braid::fabric
