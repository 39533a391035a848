// Who takes part in a race: braid, the raw loop, and engines of others.
#pragma once

#include <cstdint>
#include <deque>
#include <string>

#include "base/status.h"
#include "bench/fabric/load.h"

namespace braid::bench {

class Contender {
 public:
  virtual ~Contender() = default;

  virtual const std::string& name() const = 0;
  /// Before the clock starts: what can be prepared once and used often. The process that is written
  /// to is awake from now on.
  virtual Status prepare(const Load& load) = 0;
  /// What the clock measures: returns once the contender says that all bytes are visible at the
  /// target.
  virtual Status write(const Load& load) = 0;
  /// The process that is written to leaves the processors to others.
  virtual void rest() = 0;
};

/// Begins writes until as many are under way as the load wants. `post` begins the next one.
template <typename Ticket, typename Post>
Status post_to_depth(const Load& load, uint64_t& posted, std::deque<Ticket>& tickets,
                     const Post& post) {
  while (posted < load.count && (tickets.size() + 1) * load.parts_at_once <= load.depth) {
    const auto ticket = post();
    if (!ticket.ok()) return ticket.status();
    tickets.push_back(ticket.value());
    posted += load.parts_at_once;
  }
  return {};
}

}  // namespace braid::bench
