// How far one stream has come: marks (marks.h), and the events that were recorded behind them.
//
// Pure: the caller knows what an event is, and whether it has passed. Not synchronised.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <utility>

#include "kv/marks.h"

namespace braid::kv {

enum class EventState { kPending, kPassed, kFailed };

template <typename Event>
class Fences {
 public:
  /// All work up to `mark` is in the stream, and `event` is behind it. Marks ascend. A mark without
  /// an event, since none could be recorded, passes with the next.
  void record(Mark mark, Event event) { pending_.emplace_back(mark, event); }

  /// Asks `state_of(event)` of the oldest events, and calls `retire(event)` for each that has
  /// passed. False: an event has failed, and with it all later ones.
  template <typename StateOf, typename Retire>
  bool poll(const StateOf& state_of, const Retire& retire) {
    while (!pending_.empty()) {
      const auto [mark, event] = pending_.front();
      const EventState state = state_of(event);
      if (state == EventState::kFailed) return false;
      if (state == EventState::kPending) return true;
      passed_ = mark;
      retire(event);
      pending_.pop_front();
    }
    return true;
  }

  Mark passed() const { return passed_; }
  Mark recorded() const { return pending_.empty() ? passed_ : pending_.back().first; }

  /// The event that a stream waits for to be behind `mark`, which has not passed. None if no event
  /// has been recorded behind it.
  std::optional<Event> find(Mark mark) const {
    for (const auto& [recorded, event] : pending_)
      if (recorded >= mark) return event;
    return std::nullopt;
  }

  /// Calls `retire(event)` for all that are left.
  template <typename Retire>
  void clear(const Retire& retire) {
    for (const auto& [mark, event] : pending_) retire(event);
    pending_.clear();
  }

 private:
  std::deque<std::pair<Mark, Event>> pending_;
  Mark passed_ = 0;
};

}  // namespace braid::kv
