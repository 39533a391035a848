// A limited number of equal things that work waits for. Not safe for concurrent use: its owner
// locks.
#pragma once

#include <functional>
#include <map>

namespace braid::simulation {

/// The lowest priority number is served first, and among equals who came first.
class Slots {
 public:
  explicit Slots(int free) : free_(free) {}
  /// `granted` runs at once, or when enough has been given back.
  void take(int count, std::function<void()> granted, int priority = 0);
  void give_back(int count);

 private:
  struct Waiter {
    int count;
    std::function<void()> granted;
  };
  void serve();

  int free_;
  std::multimap<int, Waiter> waiting_;  // by priority
};

}  // namespace braid::simulation
