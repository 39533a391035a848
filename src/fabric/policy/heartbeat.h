// Decides when to send a peer a beat, and when to give a peer up: it is silent, or a message of it
// was lost. A connection that breaks may swallow a message without a word to either side; over one
// rail the next beat shows that it is missing. Pure: it decides from the times at which the peer
// was heard and told, and the present time.
//
// Time here is the engine's awake time: it passes only while the engine looks (AwakeClock). After a
// process was stopped, its peers do not count as silent: their messages of that time lie in its
// queues.
#pragma once

#include <cstdint>
#include <limits>

namespace braid::fabric {

struct HeartbeatOptions {
  uint64_t interval_ns = 1'000'000'000;  ///< between two beats; 0: none, and nobody is given up
  /// The longest silence of a peer, and the longest that a message of it may come after a later
  /// one; at least 3 intervals.
  uint64_t limit_ns = 5'000'000'000;
};

class AwakeClock {
 public:
  /// `now_ns` rises. A gap counts as `gap_max_ns` at most.
  void look(uint64_t now_ns, uint64_t gap_max_ns);
  uint64_t now_ns() const { return awake_ns_; }

 private:
  uint64_t looked_ns_ = 0;
  uint64_t awake_ns_ = 0;
  bool has_looked_ = false;
};

/// When one peer was last heard and told, and since when its oldest missing message has been
/// missing, in awake time.
struct Pulse {
  static constexpr uint64_t kNothing = std::numeric_limits<uint64_t>::max();

  uint64_t heard_ns = 0;
  uint64_t told_ns = 0;
  uint64_t missing_ns = kNothing;
};

struct HeartbeatDecision {
  bool is_to_tell = false;
  bool is_silent = false;  ///< it is given up
  bool has_lost = false;   ///< it is given up: a message of it was lost
  uint64_t again_ns = 0;   ///< when to ask next, in awake time
};

HeartbeatDecision decide(const Pulse& pulse, const HeartbeatOptions& options, uint64_t now_ns);

}  // namespace braid::fabric
