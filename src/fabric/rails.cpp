// Engine: which rails are used, and which are tried again.
#include <algorithm>
#include <string>
#include <unordered_map>
#include <utility>

#include "fabric/engine.h"

namespace braid::fabric {
namespace {

/// One byte from this engine's scratch memory to the peer's.
constexpr Slice kProbe{32, 0, 1};

Status no_such_rail(size_t rail, size_t count) {
  return Status::error("there is no rail " + std::to_string(rail) + ": this engine has " +
                       std::to_string(count));
}

}  // namespace

std::vector<RouteStatistics> Engine::routes() const {
  std::vector<RouteStatistics> all;
  peers_.for_each([&](uint64_t id, const Peer& peer) {
    for (size_t rail = 0; rail < peer.routes.size(); ++rail) {
      const Route& route = peer.routes[rail];
      all.push_back({id, peer.engine, rail, route.health.state(), route.writes, route.bytes,
                     route.failures, route.under_way_bytes, route.rate.bytes_per_s(now_ns_),
                     worker_.rail(rail).ways(route.peer)});
    }
  });
  return all;
}

std::vector<RailStatistics> Engine::rails() const {
  std::vector<RailStatistics> all;
  for (size_t rail = 0; rail < retired_.size(); ++rail)
    all.push_back({address_.rails[rail].provider, retired_[rail], worker_.immediates(rail),
                   worker_.rail(rail).traits().endpoints});
  return all;
}

EngineStatistics Engine::statistics() const {
  EngineStatistics all = statistics_;
  for (size_t rail = 0; rail < retired_.size(); ++rail) {
    const Rejections rejected = worker_.rail(rail).rejections();
    all.malformed += rejected.malformed;
    all.unauthenticated += rejected.unauthenticated;
    all.replayed += rejected.replayed;
    all.refused += rejected.refused;
  }
  return all;
}

std::vector<PeerStatistics> Engine::peers() const {
  std::unordered_map<uint64_t, uint64_t> quarantined_bytes;  // by peer
  for (const auto& [number, grant] : grants_)
    if (grant.fence == Fence::kQuarantined) quarantined_bytes[grant.peer] += grant.size_bytes;
  std::vector<PeerStatistics> all;
  peers_.for_each([&](uint64_t id, const Peer& peer) {
    const auto found = quarantined_bytes.find(id);
    all.push_back({id, peer.engine, found == quarantined_bytes.end() ? 0 : found->second});
  });
  return all;
}

Status Engine::check_rails(RailRange rails) const {
  if (rails.fits(worker_.rail_count())) return {};
  return Status::error("the write names " + std::to_string(rails.count) + " rails from number " +
                       std::to_string(rails.first) + " on: this engine has " +
                       std::to_string(worker_.rail_count()));
}

Status Engine::retire_rail(size_t rail) {
  if (rail >= retired_.size()) return no_such_rail(rail, retired_.size());
  const auto in_use = std::count(retired_.begin(), retired_.end(), false);
  if (!retired_[rail] && in_use == 1)
    return Status::error("rail " + std::to_string(rail) + " is the last in use",
                         "Restore another one first");
  retired_[rail] = true;
  ++retired_change_;
  peers_.for_each([&](uint64_t id, Peer& peer) {
    peer.routes[rail].health.is_retired_here = true;
    tell_retired(id);
  });
  return {};
}

Status Engine::restore_rail(size_t rail) {
  if (rail >= retired_.size()) return no_such_rail(rail, retired_.size());
  if (!retired_[rail]) return {};
  retired_[rail] = false;
  ++retired_change_;
  peers_.for_each([&](uint64_t id, Peer& peer) {
    peer.routes[rail].health.is_retired_here = false;
    peer.routes[rail].health.suspect(now_ns_);
    probe_routes(id);
    tell_retired(id);
  });
  return {};
}

void Engine::tell_retired(uint64_t id) {
  const Peer* peer = find_live(id);
  if (peer == nullptr || peer->state != PeerState::kConnected || peer->version < 2) return;
  tell(id, retired_rails());
}

RailsRetired Engine::retired_rails() const {
  RailsRetired now{0, retired_change_};
  for (size_t rail = 0; rail < retired_.size(); ++rail)
    now.rails |= uint32_t{retired_[rail]} << rail;
  return now;
}

void Engine::handle_from(uint64_t id, const RailsRetired& told) {
  Peer& peer = *peers_.find(id);
  if (told.change <= peer.retired_change) return;
  peer.retired_change = told.change;
  for (size_t rail = 0; rail < peer.routes.size(); ++rail) {
    RailHealth& health = peer.routes[rail].health;
    const bool is_retired = (told.rails >> rail & 1) != 0;
    if (health.is_retired_there && !is_retired) health.suspect(now_ns_);
    health.is_retired_there = is_retired;
  }
  probe_routes(id);
}

/// Messages use the first rail that is not known to be broken. So all peers' messages share few
/// queues, and a late write does not move messages to another rail.
size_t Engine::message_rail(const Peer& peer) const {
  const auto rank = [](const Route& route) {
    return std::max(route.health.rank(), static_cast<unsigned>(RailState::kSuspect));
  };
  const auto best =
      std::min_element(peer.routes.begin(), peer.routes.end(),
                       [&](const Route& a, const Route& b) { return rank(a) < rank(b); });
  return static_cast<size_t>(best - peer.routes.begin());
}

// ---- Probes ----

/// Begins the probes that are due, and sets a deadline for the others.
void Engine::probe_routes(uint64_t id) {
  Peer* peer = peers_.find(id);
  if (peer == nullptr || peer->is_leaving || peer->state != PeerState::kConnected) return;
  uint64_t next_ns = RailHealth::kNever;
  for (size_t rail = 0; rail < peer->routes.size(); ++rail) {
    RailHealth& health = peer->routes[rail].health;
    health.check(now_ns_);
    if (health.state() == RailState::kDown) move_messages(id, *peer, rail);
    if (health.wants_probe(now_ns_)) probe(id, rail);
    next_ns = std::min(next_ns, health.next_ns());
  }
  if (next_ns >= peer->next_probe_ns) return;
  peer->next_probe_ns = next_ns;
  add_deadline(next_ns, Due::kProbe, id);
}

/// A probe has no deadline: a rail that swallows it is not up again until the probe ends.
void Engine::probe(uint64_t id, size_t rail) {
  Peer& peer = *peers_.find(id);
  peer.routes[rail].health.probe_begun(now_ns_);
  Transfer transfer;
  transfer.plan = Plan::single(kProbe, scratch_.size(), 1, options_.slicing).value();
  transfer.source = &scratch_source_;
  transfer.target = &peer.scratch;
  transfer.rails = {rail, 1};
  transfer.is_probe = true;
  transfer.holds.peer = id;
  transfer.is_forgotten = true;  // nobody's ticket
  worker_.start(std::move(transfer));
}

void Engine::probe_ended(const Transfer& transfer) {
  const uint64_t id = transfer.holds.peer;
  Peer* peer = peers_.find(id);
  if (peer == nullptr || transfer.failure == Failure::kDisconnected) return;
  const bool ok = transfer.failure == Failure::kNone;
  peer->routes[transfer.rails.first].health.probe_ended(ok, now_ns_);
  probe_routes(id);
}

}  // namespace braid::fabric
