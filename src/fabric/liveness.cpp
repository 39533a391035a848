// Engine: which peers are still there.
#include <algorithm>

#include "fabric/engine.h"

namespace braid::fabric {
namespace {

// How often the kernel is asked whether processes of this host have ended. If nothing tells of an
// end, this wakes an idle engine. So a look that is due soon is made at once: the engines of
// several rails, which one thread drives, wake it together.
constexpr uint64_t kProcessesNs = 50'000'000;
constexpr uint64_t kSoonNs = kProcessesNs / 2;

}  // namespace

void Engine::look_after_peers(uint64_t now_ns) {
  look_after_processes(now_ns);
  const HeartbeatOptions& options = options_.heartbeat;
  awake_.look(now_ns, std::max<uint64_t>(options.interval_ns, 1));
  if (now_ns < look_after_peers_ns_) return;
  uint64_t again_ns = Domain::kNever;
  const uint64_t awake_ns = awake_.now_ns();
  peers_.for_each([&](uint64_t id, const Peer& peer) {
    const bool beats = options.interval_ns > 0 && peer.version >= 2;
    if (!beats || peer.state != PeerState::kConnected || peer.is_leaving) return;
    const HeartbeatDecision decision = decide(peer.pulse, options, awake_ns);
    if (decision.is_silent) return fail_peer(id, PeerFailure::kSilent);
    if (decision.has_lost) return fail_peer(id, PeerFailure::kNetwork);
    if (decision.is_to_tell) beat(id);
    again_ns = std::min(again_ns, now_ns + (decision.again_ns - awake_ns));
  });
  look_after_peers_ns_ = again_ns;
}

void Engine::look_after_processes(uint64_t now_ns) {
  if (options_.processes == nullptr || now_ns + kSoonNs < look_at_processes_ns_) return;
  look_at_processes_ns_ = now_ns + kProcessesNs;
  while (const std::optional<uint64_t> ended = options_.processes->next_ended()) {
    fail_peer(*ended, PeerFailure::kEnded);
    abandon(*ended, Absence::kEnded);
  }
}

}  // namespace braid::fabric
