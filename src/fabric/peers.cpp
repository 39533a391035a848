// Engine: who it talks to, and what they say.
#include <algorithm>
#include <string>
#include <utility>

#include "fabric/engine.h"

namespace braid::fabric {

Result<uint64_t> Engine::connect(const Address& address, uint64_t deadline_ns) {
  if (address.engine == address_.engine) return Status::error("this is the engine's own address");
  if (find_peer(address.engine)) return Status::error("the peer is known already");
  const Result<uint64_t> added = add_peer(address);
  if (!added.ok()) return added;
  add_deadline(deadline_ns, Due::kPeer, added.value());
  tell(added.value(), Hello{address_, options_.credits});
  return added;
}

Result<uint64_t> Engine::add_peer(const Address& address) {
  if (peers_.size() >= options_.peers_max)
    return Status::error("there are " + std::to_string(options_.peers_max) + " peers, the limit");
  if (address.rails.size() != worker_.rail_count())
    return Status::error("the peer has " + std::to_string(address.rails.size()) +
                             " rails, and this engine has " + std::to_string(worker_.rail_count()),
                         "Open both with as many");
  if (address.slicing != options_.slicing)
    return Status::error("the peer cuts writes into slices of another size",
                         "Use the same version of braid on both sides");
  Peer peer;
  peer.engine = address.engine;
  for (size_t i = 0; i < worker_.rail_count(); ++i) {
    const RailAddress& rail = address.rails[i];
    Domain& domain = worker_.rail(i);
    const bool is_alike = rail.provider == domain.traits().provider;
    const Result<uint32_t> connected =
        is_alike ? domain.connect(rail.name)
                 : Status::error("rail " + std::to_string(i) + " of the peer is " + rail.provider +
                                 ", here it is " + domain.traits().provider);
    if (!connected.ok()) {
      for (size_t j = 0; j < i; ++j) worker_.rail(j).disconnect(peer.routes[j].peer);
      return connected.status();
    }
    Route& route = peer.routes.emplace_back();
    route.peer = connected.value();
    route.health.is_retired_here = retired_[i];
    peer.scratch.rails.push_back(rail.scratch);
  }
  peer.scratch.size_bytes = 1;
  const uint64_t id = peers_.add(std::move(peer));
  peers_.find(id)->scratch.routes = &peers_.find(id)->routes;
  peer_of_engine_[address.engine] = id;
  return id;
}

std::optional<uint64_t> Engine::accept() {
  while (!newcomers_.empty()) {
    const uint64_t peer = newcomers_.front();
    newcomers_.pop_front();
    if (peer_state(peer).ok()) return peer;
  }
  return std::nullopt;
}

std::optional<uint64_t> Engine::find_peer(uint64_t engine) const {
  const auto found = peer_of_engine_.find(engine);
  if (found == peer_of_engine_.end()) return std::nullopt;
  return found->second;
}

Result<PeerState> Engine::peer_state(uint64_t id) const {
  const Peer* peer = peers_.find(id);
  if (peer == nullptr || peer->is_leaving) return Status::error("there is no such peer (any more)");
  return peer->state;
}

/// It stays known, so that what it says late is not taken for somebody new.
void Engine::fail_peer(Peer& peer) {
  const bool is_lost = peer.state == PeerState::kConnected;
  peer.state = PeerState::kFailed;
  if (!is_lost) return;
  const uint64_t id = peer_of_engine_[peer.engine];
  completions_.peer_changed(id, static_cast<uint64_t>(peer.state));
  fail_barriers_of(id);
}

void Engine::set_connected(Peer& peer) {
  if (peer.state != PeerState::kConnecting) return;
  peer.state = PeerState::kConnected;
  completions_.peer_changed(peer_of_engine_[peer.engine], static_cast<uint64_t>(peer.state));
}

Status Engine::disconnect(uint64_t id) {
  Peer* peer = peers_.find(id);
  if (peer == nullptr || peer->is_leaving) return Status::error("there is no such peer (any more)");
  for (size_t i = 0; i < mailboxes_.size(); ++i) mailboxes_[i]->drop(peer->routes[i].peer);
  for (const auto& [grant, target] : peer->targets)
    worker_.stop_all(targets_.find(target)->target, Failure::kDisconnected);
  worker_.stop_all(peer->scratch, Failure::kDisconnected);
  for (auto& [number, grant] : grants_)
    if (grant.peer == id && (grant.fence == Fence::kLive || grant.fence == Fence::kRevoking))
      close_grant(number, grant, false);
  fail_barriers_of(id);
  std::erase_if(inbox_, [&](const Received& received) { return received.peer == id; });
  peer->is_leaving = true;  // only now: what has just ended is not to remove it
  remove_if_drained(id);
  return {};
}

void Engine::remove_if_drained(uint64_t id) {
  Peer* peer = peers_.find(id);
  if (peer == nullptr || !peer->is_leaving || peer->scratch.under_way > 0) return;
  for (size_t i = 0; i < mailboxes_.size(); ++i)
    if (mailboxes_[i]->is_sending_to(peer->routes[i].peer)) return;
  const auto& targets = peer->targets;
  if (std::any_of(targets.begin(), targets.end(), [&](const auto& target) {
        return targets_.find(target.second)->target.under_way > 0;
      }))
    return;
  for (const auto& [grant, target] : targets) targets_.erase(target);
  for (size_t i = 0; i < worker_.rail_count(); ++i)
    worker_.rail(i).disconnect(peer->routes[i].peer);
  peer_of_engine_.erase(peer->engine);
  peers_.erase(id);
}

// ---- Messages ----

void Engine::tell(uint64_t id, decltype(Message::body) body) {
  const Peer* peer = peers_.find(id);
  if (peer == nullptr || peer->is_leaving) return;
  const size_t rail = message_rail(*peer);
  mailboxes_[rail]->queue(peer->routes[rail].peer,
                          encode({address_.engine, peer->engine, std::move(body)}), id);
}

Status Engine::send(uint64_t id, Bytes payload) {
  Peer* peer = peers_.find(id);
  if (peer == nullptr || peer->is_leaving || peer->state != PeerState::kConnected)
    return Status::error("the peer is not connected");
  if (payload.size() > kPayloadBytesMax)
    return Status::error("a message has at most " + std::to_string(kPayloadBytesMax) + " bytes",
                         "Write larger things into memory that the peer has granted");
  if (peer->credits == 0)
    return Status::error("the peer has no buffer for another message now", "Try again later");
  --peer->credits;
  tell(id, Data{{payload.begin(), payload.end()}});
  return {};
}

std::optional<Received> Engine::receive() {
  if (inbox_.empty()) return std::nullopt;
  Received received = std::move(inbox_.front());
  inbox_.pop_front();
  Peer& peer = *peers_.find(received.peer);
  --peer.unread;
  ++peer.owed;
  if (peer.owed >= (options_.credits + 1) / 2) {
    tell(received.peer, Credit{peer.owed});
    peer.owed = 0;
  }
  return received;
}

void Engine::handle(Bytes bytes) {
  Result<Message> read = decode_message(bytes);
  if (!read.ok()) {
    ++statistics_.malformed;
    return;
  }
  Message& message = read.value();
  // The same address may have been another process's before: the number says for whom this was.
  if (message.to != address_.engine) {
    ++statistics_.misdirected;
    return;
  }
  if (const Hello* hello = std::get_if<Hello>(&message.body))
    return handle_hello(message.from, *hello);
  const std::optional<uint64_t> peer = find_peer(message.from);
  if (!peer || peers_.find(*peer)->is_leaving) {
    ++statistics_.misdirected;
    return;
  }
  // Whatever it says, it has heard the Hello; its Welcome may come later.
  Peer& from = *peers_.find(*peer);
  set_connected(from);
  std::visit([&](auto& body) { handle_from(*peer, std::move(body)); }, message.body);
}

void Engine::handle_hello(uint64_t from, const Hello& hello) {
  if (hello.address.engine != from || from == address_.engine) {
    ++statistics_.malformed;
    return;
  }
  std::optional<uint64_t> id = find_peer(from);
  if (!id && options_.accepts_peers) {
    const Result<uint64_t> added = add_peer(hello.address);
    if (added.ok()) {
      id = added.value();
      newcomers_.push_back(*id);
    }
  }
  if (!id || peers_.find(*id)->has_credits || peers_.find(*id)->is_leaving) {
    ++statistics_.refused;
    return;
  }
  set_credits(*peers_.find(*id), hello.credits);
  tell(*id, Welcome{options_.credits});
}

void Engine::handle_from(uint64_t peer, const Welcome& welcome) {
  Peer& from = *peers_.find(peer);
  if (!from.has_credits) set_credits(from, welcome.credits);
}

void Engine::set_credits(Peer& peer, uint32_t credits) {
  peer.has_credits = true;
  add_credits(peer, credits);  // to those that have come back already
  set_connected(peer);
}

void Engine::add_credits(Peer& peer, uint32_t credits) {
  peer.credits += std::min(credits, ~peer.credits);
}

void Engine::handle_from(uint64_t peer, Data&& data) {
  Peer& from = *peers_.find(peer);
  if (from.state == PeerState::kFailed) {
    ++statistics_.misdirected;
    return;
  }
  if (from.unread + from.owed >= options_.credits) {
    ++statistics_.over_credit;
    return;
  }
  ++from.unread;
  inbox_.push_back({peer, std::move(data.payload)});
  completions_.message_arrived();
}

void Engine::handle_from(uint64_t peer, const Credit& credit) {
  add_credits(*peers_.find(peer), credit.credits);
}

}  // namespace braid::fabric
