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
  peers_.for_each([&](uint64_t id, Peer& peer) {
    const bool beats = options.interval_ns > 0 && peer.version >= 2;
    if (!beats || peer.state != PeerState::kConnected || peer.is_leaving) return;
    const HeartbeatDecision decision = decide(peer.pulse, options, awake_ns);
    if (decision.is_silent) return fail_peer(id, PeerFailure::kSilent);
    if (decision.has_lost && is_overtaken(peer)) return fail_peer(id, PeerFailure::kNetwork);
    if (decision.is_to_tell) beat(id);
    suspect_quiet_rails(id, peer);
    again_ns = std::min(again_ns, now_ns + (decision.again_ns - awake_ns));
  });
  look_after_peers_ns_ = again_ns;
}

/// The oldest missing message will not come any more. With several rails it may lie on one that
/// stands still, and its sender may send it again over another. So each rail has to bring a message
/// that is later than all which had come when the limit had passed for the first time.
bool Engine::is_overtaken(Peer& peer) const {
  if (mailboxes_.size() == 1) return true;
  bool by_all = peer.overtaken_by > 0;
  for (size_t rail = 0; rail < peer.routes.size(); ++rail)
    if (peer.routes[rail].health.state() != RailState::kRetired)
      by_all = by_all && peer.arrivals[rail].newest > peer.overtaken_by;
  if (by_all) return true;
  peer.overtaken_by = peer.heard.newest();
  peer.pulse.missing_ns = awake_.now_ns();
  return false;
}

/// A rail that misses two beats which others bring may be broken, and report nothing.
void Engine::suspect_quiet_rails(uint64_t id, Peer& peer) {
  if (mailboxes_.size() == 1) return;
  const uint64_t quiet_ns = options_.heartbeat.interval_ns * 5 / 2;
  bool is_any_quiet = false;
  for (size_t rail = 0; rail < peer.routes.size(); ++rail) {
    uint64_t& heard_ns = peer.arrivals[rail].heard_ns;
    const bool is_quiet = peer.pulse.heard_ns >= heard_ns + quiet_ns;
    if (heard_ns == 0 || !is_quiet) continue;
    heard_ns = 0;  // until it brings something again
    peer.routes[rail].health.suspect(now_ns_);
    is_any_quiet = true;
  }
  if (is_any_quiet) probe_routes(id);
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
