// The discrete-event simulation: one clock, one queue of events, one set of flows. Equal inputs
// give equal times. Not safe for concurrent use: its owner locks.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "simulation/flows.h"
#include "simulation/time.h"

namespace braid::simulation {

class Simulation {
 public:
  using Action = std::function<void()>;

  explicit Simulation(std::vector<double> capacities_gbps) : flows_(std::move(capacities_gbps)) {}

  Time now() const { return now_; }
  Flows& flows() { return flows_; }
  const Flows& flows() const { return flows_; }

  /// Runs `action` at `when`, or now if that has passed. Of equal times, in the order of the calls.
  void at(Time when, Action action) {
    uint32_t place = static_cast<uint32_t>(actions_.size());
    if (free_.empty()) {
      actions_.push_back(std::move(action));
    } else {
      place = free_.back();
      free_.pop_back();
      actions_[place] = std::move(action);
    }
    events_.push_back({std::max(when, now_), added_++, place});
    std::push_heap(events_.begin(), events_.end(), Event::is_later);
  }
  void after_us(double us, Action action) { at(now_ + from_us(us), std::move(action)); }
  void flow(int share_class, uint64_t size_bytes, Flows::Done done) {
    flows_.start(now_, share_class, size_bytes, std::move(done));
  }

  /// When something happens next; kForever: never, unless somebody outside does something.
  Time next_time() { return std::min(flows_.next_completion(), next_event()); }

  /// Moves the clock on when nothing is due before.
  void advance_clock(Time to) {
    if (to > now_ && next_time() > to) now_ = to;
  }

  /// Runs the next event (or the flows that end together) if it is due by `limit`.
  bool step(Time limit) {
    const Time flow = flows_.next_completion();
    const Time event = next_event();
    const Time next = std::min(flow, event);
    if (next > limit || next == kForever) return false;
    if (next > now_) now_ = next;
    if (flow <= event) {
      for (Flows::Done& done : flows_.advance(now_)) done();
    } else {
      std::pop_heap(events_.begin(), events_.end(), Event::is_later);
      const uint32_t place = events_.back().place;
      events_.pop_back();
      const Action action = std::move(actions_[place]);
      free_.push_back(place);
      action();
    }
    return true;
  }

 private:
  struct Event {
    Time when;
    uint64_t order;
    uint32_t place;  // of its action: a heap moves its elements often, and actions are large
    static bool is_later(const Event& a, const Event& b) {
      return a.when != b.when ? a.when > b.when : a.order > b.order;
    }
  };

  Time next_event() const { return events_.empty() ? kForever : events_.front().when; }

  Time now_ = 0;
  uint64_t added_ = 0;
  std::vector<Event> events_;    // a heap, the earliest first
  std::vector<Action> actions_;  // by place
  std::vector<uint32_t> free_;   // places without an action
  Flows flows_;
};

}  // namespace braid::simulation
