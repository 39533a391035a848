// Engine: its peers, from the first hello to the last farewell.
//
// A connection begins with three messages: Hello, Welcome, and any other. Each side gives the
// connection a random number, and every later message carries the other side's number. A peer
// counts as connected only when it has sent our number, so a recorded Hello is of no use to an
// attacker. Each side opens a door for the other on each rail, and they write to each other's
// doors.
#include <algorithm>
#include <string>
#include <utility>

#include "fabric/engine.h"
#include "fabric/versions.h"

namespace braid::fabric {
namespace {

std::optional<uint64_t> take_front(std::deque<uint64_t>& peers) {
  if (peers.empty()) return std::nullopt;
  const uint64_t front = peers.front();
  peers.pop_front();
  return front;
}

// The pause before a goodbye is said again. After each that failed, the next is twice as long.
constexpr uint64_t kGoodbyeNs = 10'000'000;

Status no_such_peer() { return Status::error("there is no such peer (any more)"); }

}  // namespace

Result<uint64_t> Engine::connect(const Address& address, uint64_t deadline_ns) {
  if (address.engine == address_.engine) return Status::error("this is the engine's own address");
  if (const auto known = find_peer(address.engine)) {
    const Peer& peer = *peers_.find(*known);
    if (peer.state != PeerState::kFailed && !has_only_goodbye_left(peer))
      return Status::error(peer.is_leaving ? "what was under way to the peer has not ended yet"
                                           : "the peer is known already");
  }
  if (address.version < 2 && options_.secret.is_set())
    return other_version("the peer speaks version 1, which knows no secret",
                         "Use the same version of braid on both sides");
  // The peer may have said hello just now: then only its answer to our Welcome is missing.
  if (const auto newcomer = find_newcomer(address.engine)) {
    peers_.find(*newcomer)->is_newcomer = false;
    --handshakes_;
    peer_of_engine_[address.engine] = *newcomer;
    add_deadline(deadline_ns, Due::kPeer, *newcomer);
    return *newcomer;
  }
  const Result<uint64_t> added = add_peer(address);
  if (!added.ok()) return added;
  peer_of_engine_[address.engine] = added.value();
  add_deadline(deadline_ns, Due::kPeer, added.value());
  const Peer& peer = *peers_.find(added.value());
  Hello hello{address_, options_.credits, doors_for(peer), {}};
  if (options_.processes != nullptr) hello.origin = options_.processes->self();
  tell_over_all(added.value(), working_rails(peer), std::move(hello));
  return added;
}

Status Engine::check_peer(const Address& address) const {
  if (peers_.size() >= options_.peers_max)
    return Status::error("there are " + std::to_string(options_.peers_max) + " peers, the limit");
  if (address.rails.size() != worker_.rail_count())
    return Status::error("the peer has " + std::to_string(address.rails.size()) +
                             " rails, and this engine has " + std::to_string(worker_.rail_count()),
                         "Open both with as many");
  if (address.slicing != options_.slicing)
    return Status::error("the peer cuts writes into slices of another size",
                         "Use the same version of braid on both sides");
  for (size_t i = 0; i < address.rails.size(); ++i)
    if (address.rails[i].provider != address_.rails[i].provider)
      return Status::error("rail " + std::to_string(i) + " of the peer is " +
                           address.rails[i].provider + ", here it is " +
                           address_.rails[i].provider);
  return {};
}

Result<uint64_t> Engine::add_peer(const Address& address) {
  if (peers_.size() >= options_.peers_max) say_no_more_goodbyes();
  if (Status wrong = check_peer(address); !wrong.ok()) return wrong;
  Peer peer;
  peer.engine = address.engine;
  peer.version = std::min(kVersion, address.version);
  peer.address = address;
  peer.scratch.size_bytes = 1;
  peer.next_grant = next_grant_;  // earlier connections of the peer had lower ones
  for (const RailAddress& rail : address.rails) peer.scratch.rails.push_back(rail.scratch);
  if (Status failed = open_doors(peer); !failed.ok()) return failed;
  if (Status failed = connect_messages(peer); !failed.ok()) {
    for (size_t i = 0; i < peer.doors.size(); ++i) worker_.rail(i).close_door(peer.doors[i]);
    return failed;
  }
  while (peer.session == 0 || peer_of_session_.contains(peer.session))
    peer.session = options_.random();
  const uint64_t session = peer.session;
  const uint64_t id = peers_.add(std::move(peer));
  peers_.find(id)->scratch.routes = &peers_.find(id)->routes;
  peer_of_session_[session] = id;
  return id;
}

/// Until the peer's doors are known, its routes lead to the address for messages.
Status Engine::connect_messages(Peer& peer) {
  for (size_t i = 0; i < worker_.rail_count(); ++i) {
    const Result<uint32_t> connected = worker_.rail(i).connect(peer.address.rails[i].name);
    if (!connected.ok()) {
      for (size_t j = 0; j < i; ++j) worker_.rail(j).disconnect(peer.messages[j]);
      return connected.status();
    }
    peer.messages.push_back(connected.value());
    peer.arrivals.emplace_back();
    Route& route = peer.routes.emplace_back();
    route.peer = connected.value();
    route.health.is_retired_here = retired_[i];
  }
  return {};
}

std::optional<uint64_t> Engine::accept() { return take_front(newcomers_); }

std::optional<uint64_t> Engine::find_peer(uint64_t engine) const {
  const auto found = peer_of_engine_.find(engine);
  if (found == peer_of_engine_.end()) return std::nullopt;
  return found->second;
}

std::optional<uint64_t> Engine::engine_of(uint64_t id) const {
  const Peer* peer = peers_.find(id);
  return peer == nullptr ? std::nullopt : std::optional(peer->engine);
}

/// The peer of this engine that has said hello, and has not answered our Welcome yet.
std::optional<uint64_t> Engine::find_newcomer(uint64_t engine) {
  std::optional<uint64_t> found;
  peers_.for_each([&](uint64_t id, const Peer& peer) {
    const bool is_it = peer.is_newcomer && peer.state == PeerState::kConnecting;
    if (is_it && peer.engine == engine && !peer.is_leaving) found = id;
  });
  return found;
}

Engine::Peer* Engine::find_live(uint64_t id) {
  Peer* peer = peers_.find(id);
  return peer == nullptr || peer->is_leaving ? nullptr : peer;
}

Result<PeerState> Engine::peer_state(uint64_t id) const {
  const Peer* peer = peers_.find(id);
  if (peer == nullptr || peer->is_leaving) return no_such_peer();
  return peer->state;
}

bool Engine::is_lost(uint64_t id) const {
  const Peer* peer = peers_.find(id);
  return peer != nullptr && peer->state == PeerState::kFailed && !peer->is_leaving;
}

bool Engine::was_connected(uint64_t id) const {
  const Peer* peer = peers_.find(id);
  return peer != nullptr && peer->was_connected;
}

Result<PeerFailure> Engine::peer_failure(uint64_t id) const {
  const Peer* peer = peers_.find(id);
  if (peer == nullptr || peer->is_leaving) return no_such_peer();
  return peer->failure;
}

std::optional<uint64_t> Engine::next_failed() { return take_front(failed_); }

/// The peer has sent our number of the connection: so it is alive, and means this connection.
void Engine::connected(uint64_t id) {
  Peer& peer = *peers_.find(id);
  peer.state = PeerState::kConnected;
  peer.was_connected = true;
  peer.pulse.heard_ns = peer.pulse.told_ns = awake_.now_ns();
  for (Arrivals& over : peer.arrivals) over.heard_ns = awake_.now_ns();  // a rail may be broken
  look_after_peers_ns_ = look_at_processes_ns_ = now_ns_;
  completions_.peer_changed(id, static_cast<uint64_t>(peer.state));
  if (peer.is_newcomer) {
    --handshakes_;
    newcomers_.push_back(id);
  }
  const auto before = find_peer(peer.engine);
  peer_of_engine_[peer.engine] = id;
  if (before && *before != id && find_live(*before) != nullptr)
    fail_peer(*before, PeerFailure::kReplaced);
  probe_routes(id);  // a rail may have failed the greeting
  if (retired_change_ > 0) tell_retired(id);
}

/// The peer stays known, so that its late messages are not mistaken for a new peer's. Its doors are
/// shut, so that none of its writes lands any more: it has to connect anew.
void Engine::fail_peer(uint64_t id, PeerFailure why) {
  Peer* peer = find_live(id);
  if (peer == nullptr || peer->state == PeerState::kFailed) return;
  const bool was_connected = peer->was_connected;
  const bool is_announced = !peer->is_newcomer || was_connected;
  if (!is_announced) --handshakes_;
  peer->state = PeerState::kFailed;
  peer->failure = why;
  stop_writes(*peer);
  if (closing_fences_) close_doors(id);
  for (auto& [number, grant] : grants_)  // without doors, where removal fences
    if (grant.peer == id && grant.removal_fences && !grant.is_closed)
      close_grant(number, grant, false);
  if (!is_announced) return remove_peer(id, false);
  const bool may_not_know = why == PeerFailure::kNetwork || why == PeerFailure::kTooMuch;
  if (was_connected && peer->version >= 2 && may_not_know)
    tell(id, Goodbye{Goodbye::Why::kSilence});
  ++statistics_.peers_failed;
  failed_.push_back(id);
  if (!was_connected) return;
  completions_.peer_changed(id, static_cast<uint64_t>(PeerState::kFailed));
  fail_barriers_of(id);
}

void Engine::stop_writes(Peer& peer) { worker_.stop_all(peer.routes, Failure::kDisconnected); }

Status Engine::disconnect(uint64_t id, bool is_broken) {
  Peer* peer = find_live(id);
  if (peer == nullptr) return no_such_peer();
  remove_peer(id, is_broken);
  return {};
}

void Engine::has_shut(uint64_t id) {
  const Peer* peer = peers_.find(id);
  if (peer != nullptr && peer->is_leaving) add_deadline(now_ns_ + options_.shut_ns, Due::kShut, id);
}

/// Whether a goodbye is of use.
bool Engine::may_hear(const Peer& peer) {
  const bool has_gone = peer.has_ended || peer.failure == PeerFailure::kLeft;
  return peer.has_arrived && peer.version >= 2 && !has_gone && !peer.is_leaving;
}

void Engine::say_goodbye() {
  peers_.for_each([&](uint64_t id, const Peer& peer) {
    if (may_hear(peer)) tell(id, Goodbye{Goodbye::Why::kLeaves});
  });
}

bool Engine::has_messages_under_way() const {
  bool has_some = false;
  peers_.for_each([&](uint64_t, const Peer& peer) {
    has_some = has_some || peer.is_to_say_goodbye || messages_for(peer) > 0;
  });
  return has_some;
}

void Engine::remove_peer(uint64_t id, bool is_broken) {
  Peer* peer = peers_.find(id);
  drop_messages(*peer);
  peer->owes_goodbye = may_hear(*peer);
  if (peer->owes_goodbye) tell_goodbye(id);
  stop_writes(*peer);
  close_doors(id);
  for (auto& [number, grant] : grants_)
    if (grant.peer == id && (grant.fence == Fence::kLive || grant.fence == Fence::kRevoking))
      close_grant(number, grant, false);
  fail_barriers_of(id);
  std::erase_if(inbox_, [&](const Received& received) { return received.peer == id; });
  std::erase(newcomers_, id);
  std::erase(failed_, id);
  if (peer->is_newcomer && peer->state == PeerState::kConnecting) --handshakes_;
  peer->is_leaving = true;  // only now: transfers that have just ended must not remove it
  if (is_broken) return abandon(id, Absence::kSilent);
  if (!remove_if_drained(id)) add_deadline(now_ns_ + options_.farewell_ns, Due::kFarewell, id);
}

/// Each time over another rail.
void Engine::tell_goodbye(uint64_t id) {
  const Peer& peer = *peers_.find(id);
  const bool is_silent = peer.failure == PeerFailure::kSilent;
  tell(id, (message_rail(peer) + peer.goodbyes_failed) % mailboxes_.size(),
       Goodbye{is_silent ? Goodbye::Why::kSilence : Goodbye::Why::kLeaves,
               has_writes_under_way(peer)});
}

/// What breaks a connection fails the goodbye too, and the next connection may take it. A peer that
/// has not heard it would wait for this engine until its heartbeat ends that.
void Engine::goodbye_ended(uint64_t id, bool is_heard) {
  Peer* peer = peers_.find(id);
  if (peer == nullptr || !peer->owes_goodbye) return;
  if (is_heard) return owe_no_goodbye(*peer);
  if (std::exchange(peer->is_to_say_goodbye, true)) return;
  add_deadline(now_ns_ + (kGoodbyeNs << std::min(peer->goodbyes_failed++, 7u)), Due::kGoodbye, id);
}

void Engine::say_goodbye_again(uint64_t id) {
  peers_.find(id)->is_to_say_goodbye = false;
  tell_goodbye(id);
}

void Engine::owe_no_goodbye(Peer& peer) { peer.owes_goodbye = peer.is_to_say_goodbye = false; }

/// Makes room for other peers.
void Engine::say_no_more_goodbyes() {
  std::vector<uint64_t> leaving;
  peers_.for_each([&](uint64_t id, const Peer& peer) {
    if (has_only_goodbye_left(peer)) leaving.push_back(id);
  });
  for (const uint64_t id : leaving) abandon(id, Absence::kSilent);
}

/// True: a peer that was disconnected is kept for its goodbye alone, which has failed before.
bool Engine::has_only_goodbye_left(const Peer& peer) const {
  return peer.goodbyes_failed > 0 && !has_writes_under_way(peer);
}

/// The peer will take nothing more: its postings under way must end. Doors do not carry messages,
/// so messages go on to a peer that has only shut its doors.
void Engine::abandon(uint64_t id, Absence absence) {
  Peer* peer = peers_.find(id);
  if (peer == nullptr) return;
  const bool hears_messages = absence == Absence::kShut;
  if (absence == Absence::kEnded) peer->has_ended = true;
  if (!hears_messages) {
    drop_messages(*peer);
    owe_no_goodbye(*peer);
  }
  for (size_t i = 0; i < worker_.rail_count(); ++i) {
    const uint32_t writes = peer->routes[i].peer;
    if (writes != peer->messages[i]) worker_.rail(i).abandon(writes, absence);
    if (!hears_messages) worker_.rail(i).abandon(peer->messages[i], absence);
  }
  remove_if_drained(id);
}

bool Engine::has_writes_under_way(const Peer& peer) const {
  const auto is_under_way = [&](const auto& target) {
    return targets_.find(target.second)->target.under_way > 0;
  };
  return peer.scratch.under_way > 0 ||
         std::any_of(peer.targets.begin(), peer.targets.end(), is_under_way);
}

/// Returns whether the peer is gone now.
bool Engine::remove_if_drained(uint64_t id) {
  Peer* peer = peers_.find(id);
  if (peer == nullptr || !peer->is_leaving || peer->is_to_say_goodbye) return false;
  if (messages_for(*peer) > 0 || has_writes_under_way(*peer)) return false;
  for (const auto& [grant, target] : peer->targets) targets_.erase(target);
  for (size_t i = 0; i < worker_.rail_count(); ++i) {
    const uint32_t writes = peer->routes[i].peer;
    if (writes != peer->messages[i]) worker_.rail(i).disconnect(writes);
    worker_.rail(i).disconnect(peer->messages[i]);
  }
  if (find_peer(peer->engine) == id) peer_of_engine_.erase(peer->engine);
  peer_of_session_.erase(peer->session);
  if (options_.processes != nullptr) options_.processes->forget(id);
  worker_.forget_routes(peer->routes);
  peers_.erase(id);
  return true;
}

}  // namespace braid::fabric
