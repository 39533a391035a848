// What happens at which virtual time. Events of the same time run in the order they were added.
// Not safe for concurrent use: its owner locks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "simulation/time.h"

namespace braid::simulation {

class EventQueue {
 public:
  using Action = std::function<void()>;

  void add(Time when, Action action);
  bool empty() const { return heap_.empty(); }
  /// kForever when empty.
  Time next_time() const { return heap_.empty() ? kForever : heap_.front().when; }
  /// Takes the earliest event out; the queue must not be empty.
  Action pop();

 private:
  struct Entry {
    Time when;
    uint64_t order;
    Action action;
  };
  static bool later(const Entry& a, const Entry& b) {
    return a.when != b.when ? a.when > b.when : a.order > b.order;
  }

  std::vector<Entry> heap_;
  uint64_t added_ = 0;
};

}  // namespace braid::simulation
