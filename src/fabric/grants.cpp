// Engine: grants, and how they end.
#include <algorithm>
#include <string>
#include <utility>

#include "fabric/engine.h"

namespace braid::fabric {

Status Engine::check_grant(uint64_t region_id, uint64_t peer_id, uint64_t offset_bytes,
                           uint64_t size_bytes) const {
  const Region* region = regions_.find(region_id);
  if (region == nullptr) return Status::error("there is no such region (any more)");
  const Peer* peer = peers_.find(peer_id);
  if (peer == nullptr || peer->state != PeerState::kConnected || peer->is_leaving)
    return Status::error("the peer is not connected");
  const uint64_t all_bytes = region->source.memory.size();
  if (size_bytes == 0 || offset_bytes > all_bytes || size_bytes > all_bytes - offset_bytes)
    return Status::error("what is to be granted lies outside its region of " +
                         std::to_string(all_bytes) + " bytes, or is empty");
  return {};
}

Result<Granted> Engine::grant(uint64_t region_id, uint64_t peer_id, uint64_t offset_bytes,
                              uint64_t size_bytes) {
  if (Status wrong = check_grant(region_id, peer_id, offset_bytes, size_bytes); !wrong.ok())
    return wrong;
  Region* region = regions_.find(region_id);
  Peer* peer = peers_.find(peer_id);
  const MutableBytes all = region->source.memory;
  Grant grant;
  grant.peer = peer_id;
  grant.region = region_id;
  grant.size_bytes = size_bytes;
  grant.number = peer->next_grant;
  Granted granted{next_grant_, {address_.engine, peer->engine, grant.number, size_bytes, {}}};
  granted.descriptor.version = peer->version;
  if (peer->version >= 2) granted.descriptor.session = peer->session;
  for (size_t i = 0; i < worker_.rail_count(); ++i) {
    const Result<uint32_t> added = add_granted(i, *peer, all.subspan(offset_bytes, size_bytes));
    if (!added.ok()) {
      for (size_t j = 0; j < i; ++j) worker_.rail(j).remove_region(grant.rails[j]);
      return added.status();
    }
    grant.rails.push_back(added.value());
    grant.removal_fences = grant.removal_fences && worker_.rail(i).removal_fences(added.value());
    granted.descriptor.rails.push_back(worker_.rail(i).remote_range(added.value()));
  }
  ++region->grants;
  peer->granted[peer->next_grant++] = next_grant_;
  grants_[next_grant_++] = std::move(grant);
  return granted;
}

/// Adds the region at the peer's door, if it has one, so that it is reached through that door
/// alone.
Result<uint32_t> Engine::add_granted(size_t rail, const Peer& peer, MutableBytes memory) {
  Domain& domain = worker_.rail(rail);
  return peer.doors.empty() ? domain.add_region(memory, Access::kRemoteWrite)
                            : domain.add_door_region(peer.doors[rail], memory);
}

Status Engine::revoke(uint64_t id, uint64_t deadline_ns) {
  const auto found = grants_.find(id);
  if (found == grants_.end()) return Status::error("there is no such grant (any more)");
  Grant& grant = found->second;
  if (grant.fence == Fence::kFenced) return {};
  if (deadline_ns < grant.deadline_ns) {  // the earliest deadline of all callers
    grant.deadline_ns = deadline_ns;
    add_deadline(deadline_ns, Due::kGrant, id);
  }
  if (grant.fence != Fence::kLive) return {};
  grant.fence = Fence::kRevoking;
  if (Peer* peer = peers_.find(grant.peer))
    tell(grant.peer, Revoke{grant.number, oldest_live_grant(*peer)});
  return {};
}

Result<Fence> Engine::fence(uint64_t id) const {
  const auto found = grants_.find(id);
  if (found == grants_.end()) return Status::error("there is no such grant (any more)");
  return found->second.fence;
}

Status Engine::forget_grant(uint64_t id) {
  const auto found = grants_.find(id);
  if (found == grants_.end()) return Status::error("there is no such grant (any more)");
  if (found->second.fence != Fence::kFenced) return Status::error("the grant is not fenced");
  if (Peer* peer = peers_.find(found->second.peer)) peer->granted.erase(found->second.number);
  grants_.erase(found);
  return {};
}

/// The number of the peer's oldest live grant. It only rises, so grants that it has passed are not
/// looked at again.
uint64_t Engine::oldest_live_grant(Peer& peer) const {
  auto oldest = peer.granted.lower_bound(peer.oldest_live);
  while (oldest != peer.granted.end() && grants_.at(oldest->second).fence != Fence::kLive) ++oldest;
  return peer.oldest_live = oldest == peer.granted.end() ? peer.next_grant : oldest->first;
}

/// The peer has not answered in time. If removal does not fence, the region stays. A late write may
/// then land there, which breaks nothing. On some networks a write to a removed region breaks the
/// connection, and then the peer's answer would never come.
void Engine::give_up_waiting(uint64_t id, Grant& grant) {
  if (grant.is_closed) return;  // a draining grant is polled anyway
  if (grant.removal_fences)
    close_grant(id, grant, false);
  else
    grant.fence = Fence::kQuarantined;
}

/// `is_fenced`: the peer says that all its writes have ended well, so nothing is in the network.
/// The engine believes it: a caller that does not trust a peer disconnects it.
void Engine::close_grant(uint64_t id, Grant& grant, bool is_fenced) {
  if (!grant.is_closed)
    for (size_t i = 0; i < grant.rails.size(); ++i) worker_.rail(i).remove_region(grant.rails[i]);
  grant.is_closed = true;
  grant.is_fenced = grant.is_fenced || is_fenced;
  grant.fence = Fence::kQuarantined;
  if (!grant.is_fenced && !grant.removal_fences && grant.doors.empty()) return;
  draining_.insert(id);
  fence_drained();
}

Drain Engine::drain(const Grant& grant) {
  Drain all = Drain::kOver;
  for (size_t i = 0; i < grant.rails.size() && !grant.is_fenced; ++i)
    all = std::max(all, grant.doors.empty() ? worker_.rail(i).drain(grant.rails[i])
                                            : worker_.rail(i).drain_door(grant.doors[i]));
  return all;
}

/// Updates closed grants: the copies of their rails end, and so do processes that hold the memory.
void Engine::fence_drained() {
  std::erase_if(draining_, [&](uint64_t id) {
    Grant& grant = grants_.at(id);
    const Drain now = drain(grant);
    const bool ends_in_time = now == Drain::kEnding && now_ns_ < grant.deadline_ns;
    grant.fence = now == Drain::kOver ? Fence::kFenced
                  : ends_in_time      ? Fence::kRevoking
                                      : Fence::kQuarantined;
    if (now != Drain::kOver) return false;
    --regions_.find(grant.region)->grants;
    return true;
  });
}

bool Engine::is_draining(uint64_t peer) const {
  return std::any_of(draining_.begin(), draining_.end(), [&](uint64_t id) {
    const Grant& grant = grants_.at(id);
    return grant.peer == peer && !grant.doors.empty();
  });
}

uint64_t Engine::quarantined_bytes() const {
  uint64_t sum_bytes = 0;
  for (const auto& [id, grant] : grants_)
    if (grant.fence == Fence::kQuarantined) sum_bytes += grant.size_bytes;
  return sum_bytes;
}

// ---- The other side ----

Result<uint64_t> Engine::open_target(const Descriptor& descriptor) {
  const std::optional<uint64_t> peer_id = find_peer(descriptor.owner);
  if (!peer_id) return Status::error("the owner of this descriptor is no peer of this engine");
  if (descriptor.writer != address_.engine)
    return Status::error("this descriptor is for another engine, or for an earlier process");
  if (descriptor.rails.size() != worker_.rail_count())
    return Status::error("this descriptor is for " + std::to_string(descriptor.rails.size()) +
                         " rails, and this engine has " + std::to_string(worker_.rail_count()));
  Peer& peer = *peers_.find(*peer_id);
  if (peer.state != PeerState::kConnected || peer.is_leaving)
    return Status::error("the peer is not connected");
  if (descriptor.version != peer.version || descriptor.session != peer.their_session)
    return Status::error("this descriptor is of an earlier connection to its owner",
                         "Ask the owner for a new one");
  if (descriptor.grant < peer.revoked_below || peer.revoked.contains(descriptor.grant))
    return Status::error("the owner has revoked this descriptor");
  if (peer.targets.contains(descriptor.grant))
    return Status::error("this descriptor is open already");
  PeerTarget target;
  target.peer = *peer_id;
  target.grant = descriptor.grant;
  target.target.routes = &peer.routes;
  target.target.rails = descriptor.rails;
  target.target.size_bytes = descriptor.size_bytes;
  target.target.gathers = peer.version >= 2;
  const uint64_t id = targets_.add(std::move(target));
  peer.targets[descriptor.grant] = id;
  return id;
}

bool Engine::is_orphan(uint64_t id) const {
  const PeerTarget* target = targets_.find(id);
  return target != nullptr && is_lost(target->peer);
}

Status Engine::check_target(const PeerTarget* target) const {
  if (target == nullptr) return Status::error("there is no such target (any more)");
  if (target->is_revoked) return Status::error("the owner has revoked this target");
  const Peer& owner = *peers_.find(target->peer);
  if (owner.is_leaving) return Status::error("the owner of this target was disconnected");
  if (owner.state != PeerState::kConnected)
    return Status::error("the owner of this target is not connected any more");
  return {};
}

/// Tells the owner of a revoked target that nothing is under way, as soon as that is so.
void Engine::confirm_if_drained(uint64_t id) {
  const PeerTarget* target = targets_.find(id);
  if (target == nullptr || !target->is_revoked || target->target.under_way > 0) return;
  const Revoked confirmed{target->grant, target->target.is_clean};
  const uint64_t peer = target->peer;
  peers_.find(peer)->targets.erase(target->grant);
  targets_.erase(id);
  tell(peer, confirmed);
}

void Engine::handle_from(uint64_t peer_id, const Revoke& revoke) {
  Peer& peer = *peers_.find(peer_id);
  if (revoke.oldest_live > peer.revoked_below) {
    peer.revoked_below = revoke.oldest_live;
    peer.revoked.erase_below(peer.revoked_below);
  }
  // A revocation may overtake its descriptor, which must then not be opened any more.
  if (revoke.grant >= peer.revoked_below) peer.revoked.add(revoke.grant);
  if (peer.revoked.range_count() > options_.remembered_max)
    return fail_peer(peer_id, PeerFailure::kTooMuch);
  const auto known = peer.targets.find(revoke.grant);
  if (known == peer.targets.end()) return tell(peer_id, Revoked{revoke.grant, true});
  const uint64_t id = known->second;
  PeerTarget& target = *targets_.find(id);
  target.is_revoked = true;
  worker_.stop_all(target.target, Failure::kRevoked);
  confirm_if_drained(id);
}

void Engine::handle_from(uint64_t peer, const Revoked& revoked) {
  auto& granted = peers_.find(peer)->granted;
  const auto found = granted.find(revoked.grant);
  if (found == granted.end()) return;
  const uint64_t id = found->second;
  Grant& grant = grants_.at(id);
  if (grant.fence == Fence::kLive) return;  // it was not revoked
  granted.erase(found);
  if (grant.fence == Fence::kRevoking || grant.fence == Fence::kQuarantined)
    close_grant(id, grant, revoked.is_clean);
}

}  // namespace braid::fabric
