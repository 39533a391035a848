#include "simulation/slots.h"

#include <utility>

namespace braid::simulation {

void Slots::take(int count, std::function<void()> granted, int priority) {
  waiting_.emplace(priority, Waiter{count, std::move(granted)});  // after its equals
  serve();
}

void Slots::give_back(int count) {
  free_ += count;
  serve();
}

// Whoever is first and does not fit holds up the others, or large requests would never be served.
void Slots::serve() {
  while (!waiting_.empty() && waiting_.begin()->second.count <= free_) {
    const Waiter next = std::move(waiting_.extract(waiting_.begin()).mapped());
    free_ -= next.count;
    next.granted();
  }
}

}  // namespace braid::simulation
