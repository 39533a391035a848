// Delivers events to the program: to callbacks, which run one after the other on a thread of their
// own, or to a queue, whose descriptor is readable while it holds events.
//
// Neither way has a limit, and adding an event never waits: a slow callback holds up only other
// callbacks. Safe for concurrent use.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "base/status.h"
#include "braid/fabric_abi.h"

namespace braid::fabric {

/// The destination of a request's events.
struct Sink {
  braid_fabric_callback callback = nullptr;  ///< null: to the queue
  void* user = nullptr;
};

/// Events of one kind that the program need not see one by one: until an event is delivered, later
/// ones only change its value.
struct Merged {
  bool is_queued = false;
  bool is_released = false;
  uint64_t told = 0;    ///< the value of the last event
  uint64_t latest = 0;  ///< the value of the next event
};

class Events {
 public:
  static Result<std::unique_ptr<Events>> open();
  /// Closes it.
  ~Events();
  Events(const Events&) = delete;
  Events& operator=(const Events&) = delete;

  /// Delivers to callbacks the undelivered last events of requests, as cancelled, after the running
  /// callback has returned. Drops all other undelivered events. Waits for these callbacks, unless
  /// it is called within a callback. The running callback may still call the functions below.
  void close();

  /// Makes the callbacks' thread, unless it is closed. Called before events for callbacks are
  /// added.
  void prepare(const Sink& sink);
  /// `is_last`: it is the last event of its request.
  void add(const Sink& sink, braid_fabric_event event, bool is_last);
  /// Adds an event with a new `value`, or changes the undelivered event of `merged`, of which there
  /// is at most one.
  void merge(const Sink& sink, braid_fabric_event event, const std::shared_ptr<Merged>& merged,
             uint64_t value);
  /// Delivers no event of `merged` any more. Waits for its callback, unless called within it.
  void release(const std::shared_ptr<Merged>& merged);

  /// Takes events out of the queue, oldest first. Returns how many.
  size_t take(std::span<braid_fabric_event> events);
  /// Readable while events are queued, even if somebody reads it. Owned by this object.
  int descriptor() const;

  /// This thread is running a callback of this object's.
  bool is_in_callback() const;

 private:
  struct State;
  explicit Events(std::shared_ptr<State> state) : state_(std::move(state)) {}

  std::shared_ptr<State> state_;  // shared with the thread, which may outlive this object
};

}  // namespace braid::fabric
