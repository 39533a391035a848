#include "fabric/policy/heartbeat.h"

#include <algorithm>

namespace braid::fabric {

void AwakeClock::look(uint64_t now_ns, uint64_t gap_max_ns) {
  if (has_looked_ && now_ns > looked_ns_) awake_ns_ += std::min(now_ns - looked_ns_, gap_max_ns);
  looked_ns_ = now_ns;
  has_looked_ = true;
}

HeartbeatDecision decide(const Pulse& pulse, const HeartbeatOptions& options, uint64_t now_ns) {
  const uint64_t silent_ns = pulse.heard_ns + options.limit_ns;
  const uint64_t lost_ns =
      pulse.missing_ns == Pulse::kNothing ? Pulse::kNothing : pulse.missing_ns + options.limit_ns;
  const uint64_t tell_ns = pulse.told_ns + options.interval_ns;
  if (now_ns >= silent_ns) return {false, true, false, now_ns};
  if (now_ns >= lost_ns) return {false, false, true, now_ns};
  const bool is_to_tell = now_ns >= tell_ns;
  const uint64_t next_tell_ns = is_to_tell ? now_ns + options.interval_ns : tell_ns;
  return {is_to_tell, false, false, std::min({silent_ns, lost_ns, next_tell_ns})};
}

}  // namespace braid::fabric
