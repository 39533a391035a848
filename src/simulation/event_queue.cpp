#include "simulation/event_queue.h"

#include <algorithm>
#include <utility>

namespace braid::simulation {

void EventQueue::add(Time when, Action action) {
  heap_.push_back({when, added_++, std::move(action)});
  std::push_heap(heap_.begin(), heap_.end(), later);
}

EventQueue::Action EventQueue::pop() {
  std::pop_heap(heap_.begin(), heap_.end(), later);
  Action action = std::move(heap_.back().action);
  heap_.pop_back();
  return action;
}

}  // namespace braid::simulation
