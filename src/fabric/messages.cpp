// Engine: the messages between engines.
#include <algorithm>
#include <string>
#include <type_traits>
#include <utility>

#include "fabric/engine.h"

namespace braid::fabric {
namespace {

// Data messages to one peer that are queued or under way.
constexpr size_t kUnsentMax = 256;
// The latest messages to one peer, which are kept.
constexpr size_t kToldMax = 32;

}  // namespace

void Engine::tell(uint64_t id, decltype(Message::body) body) {
  const Peer* peer = find_live(id);
  if (peer == nullptr || peer->has_ended) return;
  tell(id, message_rail(*peer), std::move(body));
}

/// A rail that has not delivered all earlier messages gets no beat. If there is no other, the
/// messages under way serve as beats.
void Engine::beat(uint64_t id) {
  Peer& peer = *peers_.find(id);
  std::vector<size_t> rails = working_rails(peer);
  std::erase_if(rails,
                [&](size_t rail) { return mailboxes_[rail]->count_for(peer.messages[rail]) > 0; });
  if (rails.empty()) return;
  tell_over_all(id, rails, Beat{});
  // The earlier notice may have been lost on a rail that breaks silently.
  if (retired_change_ > 0 && peer.version >= 2) tell(id, rails.front(), retired_rails());
}

/// The same message, since each rail may swallow what it is given, and report nothing.
void Engine::tell_over_all(uint64_t id, const std::vector<size_t>& rails,
                           decltype(Message::body) body) {
  Peer& peer = *peers_.find(id);
  const std::vector<std::byte> bytes = next_message(peer, std::move(body), {});
  for (const size_t rail : rails) mailboxes_[rail]->queue({peer.messages[rail], bytes, id});
  peer.pulse.told_ns = awake_.now_ns();
}

/// Those that may work; if there is none, the one that messages take.
std::vector<size_t> Engine::working_rails(const Peer& peer) const {
  std::vector<size_t> working;
  for (size_t rail = 0; rail < peer.routes.size(); ++rail) {
    const RailState state = peer.routes[rail].health.state();
    if (state == RailState::kUp || state == RailState::kSuspect) working.push_back(rail);
  }
  if (working.empty()) working.push_back(message_rail(peer));
  return working;
}

void Engine::tell(uint64_t id, size_t rail, decltype(Message::body) body, Bytes following) {
  Peer& peer = *peers_.find(id);
  const bool is_goodbye = std::holds_alternative<Goodbye>(body);
  const bool is_kept = mailboxes_.size() > 1 && peer.state == PeerState::kConnected && !is_goodbye;
  // Of several rails each needs a beat.
  if (mailboxes_.size() == 1) peer.pulse.told_ns = awake_.now_ns();
  std::vector<std::byte> bytes = next_message(peer, std::move(body), following);
  if (is_kept) keep(peer, rail, bytes);
  mailboxes_[rail]->queue({peer.messages[rail], std::move(bytes), id, 0, is_goodbye});
  if (messages_for(peer) > options_.queued_max) fail_peer(id, PeerFailure::kTooMuch);
}

std::vector<std::byte> Engine::next_message(Peer& peer, decltype(Message::body) body,
                                            Bytes following) const {
  const bool is_hello = std::holds_alternative<Hello>(body);
  Message message{address_.engine, peer.engine, std::move(body)};
  message.version = peer.version;
  message.session = {peer.session, peer.their_session, is_hello ? 0 : ++peer.sequence};
  if (is_hello) message.session.to = 0;
  return encode(message, options_.secret, following);
}

/// A rail that breaks without a word has taken messages before that is noticed. A peer has few
/// credits then, so there are not many.
void Engine::keep(Peer& peer, size_t rail, const std::vector<std::byte>& bytes) const {
  if (peer.told.size() == kToldMax) peer.told.pop_front();
  peer.told.push_back({rail, now_ns_, bytes});
}

/// Sends the letter again, over a rail where it has not failed. If the peer got it nevertheless, it
/// drops the second copy by its sequence. False: there is no such rail.
bool Engine::send_again(size_t rail, Mailbox::Letter letter) {
  const Peer* peer = find_live(letter.tag);
  if (peer == nullptr || peer->version < 2) return false;
  letter.tried_rails |= 1u << rail;
  size_t best = mailboxes_.size();
  for (size_t other = 0; other < mailboxes_.size(); ++other)
    if ((letter.tried_rails >> other & 1) == 0 &&
        (best == mailboxes_.size() ||
         peer->routes[other].health.rank() < peer->routes[best].health.rank()))
      best = other;
  if (best == mailboxes_.size()) return false;
  letter.peer = peer->messages[best];
  mailboxes_[best]->queue(std::move(letter));
  return true;
}

/// Moves the messages that wait for a rail which is down to another rail. What it took before that
/// was noticed goes there too: the peer drops, by their sequences, those that it has got.
void Engine::move_messages(uint64_t id, Peer& peer, size_t rail) {
  const size_t other = message_rail(peer);
  if (other == rail) return;
  const uint64_t unnoticed_ns = 2 * options_.heartbeat.limit_ns + RailHealth::kProbeLateNs;
  for (Told& told : peer.told) {
    if (told.rail != rail || peer.version < 2) continue;
    told.rail = other;
    if (now_ns_ - told.at_ns <= unnoticed_ns)
      mailboxes_[other]->queue({peer.messages[other], told.bytes, id});
  }
  for (Mailbox::Letter& letter : mailboxes_[rail]->take_queued(peer.messages[rail])) {
    letter.peer = peer.messages[other];
    mailboxes_[other]->queue(std::move(letter));
  }
}

/// The number of messages to the peer that are queued or undelivered.
size_t Engine::messages_for(const Peer& peer) const {
  size_t count = 0;
  for (size_t i = 0; i < mailboxes_.size(); ++i)
    count += mailboxes_[i]->count_for(peer.messages[i]);
  return count;
}

void Engine::drop_messages(const Peer& peer) {
  for (size_t i = 0; i < mailboxes_.size(); ++i) mailboxes_[i]->drop(peer.messages[i]);
}

Status Engine::send(uint64_t id, Bytes payload, Bytes following) {
  Peer* peer = find_live(id);
  if (peer == nullptr || peer->state != PeerState::kConnected)
    return Status::error("the peer is not connected");
  const size_t bytes_max = following.empty() ? kPayloadBytesMax : kPayloadBytesBeforeMax;
  if (payload.size() > bytes_max || following.size() > kFollowingBytesMax)
    return Status::error(
        "a message has at most " + std::to_string(bytes_max) +
            (following.empty()
                 ? std::string(" bytes")
                 : " bytes if " + std::to_string(kFollowingBytesMax) + " or fewer follow it"),
        "Write larger things into memory that the peer has granted");
  // A peer may grant any number of credits, and take nothing.
  if (peer->credits == 0 || messages_for(*peer) >= kUnsentMax)
    return Status::error("the peer has no buffer for another message now", "Try again later");
  --peer->credits;
  if (following.empty())
    tell(id, Data{{payload.begin(), payload.end()}});
  else
    tell(id, message_rail(*peer),
         DataWithBytes{{payload.begin(), payload.end()}, static_cast<uint16_t>(following.size())},
         following);
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

void Engine::handle(size_t rail, Bytes bytes) {
  Result<Message> read = decode_message(bytes, options_.secret);
  if (!read.ok()) {
    ++(options_.secret.is_set() && !is_sealed(bytes, options_.secret) ? statistics_.unauthenticated
                                                                      : statistics_.malformed);
    return;
  }
  Message& message = read.value();
  // An earlier process may have had the same address: the number names the intended engine.
  if (message.to != address_.engine) {
    ++statistics_.misdirected;
    return;
  }
  if (const Hello* hello = std::get_if<Hello>(&message.body)) return handle_hello(message, *hello);
  const std::optional<uint64_t> id = sender_of(message);
  if (!id) {
    ++statistics_.misdirected;
    return;
  }
  Peer& peer = *peers_.find(*id);
  if (peer.has_arrived && peer.their_session != message.session.from) forget_arrival(*id);
  if (message.version >= 2 && !accept_message(peer, rail, message)) return;
  note_missing(peer);
  peer.their_session = message.session.from;
  if (peer.is_leaving)  // both have said goodbye
    return add_deadline(now_ns_ + options_.shut_ns, Due::kShut, *id);
  peer.pulse.heard_ns = awake_.now_ns();
  // Any message shows that the peer has received the Hello or the Welcome.
  if (peer.state == PeerState::kConnecting && (peer.has_arrived || peer.version < 2))
    connected(*id);
  // The peer has come back, and does not know yet that it was given up.
  const bool is_to_know = peer.state == PeerState::kFailed && messages_for(peer) == 0;
  const bool is_goodbye = std::holds_alternative<Goodbye>(message.body);
  const auto handle_body = [&](auto& body) {
    if constexpr (std::is_same_v<decltype(body), DataWithBytes&>)
      data_arrived(*id, std::move(body.payload), bytes.last(body.following_bytes));
    else
      handle_from(*id, std::move(body));
  };
  std::visit(handle_body, message.body);
  if (is_to_know && !is_goodbye) tell(*id, Goodbye{Goodbye::Why::kSilence});
}

/// False: it has come before. Beats and Welcomes come over each rail.
bool Engine::accept_message(Peer& peer, size_t rail, const Message& message) {
  const uint64_t sequence = message.session.sequence;
  Arrivals& over = peer.arrivals[rail];
  const bool is_new = peer.heard.accept(sequence);
  const bool is_later = sequence > over.newest;
  if (is_new || is_later) over.heard_ns = awake_.now_ns();
  over.newest = std::max(over.newest, sequence);
  const bool goes_over_all =
      mailboxes_.size() > 1 &&
      (std::holds_alternative<Beat>(message.body) || std::holds_alternative<Welcome>(message.body));
  if (!is_new && !goes_over_all) ++statistics_.replayed;
  return is_new;
}

/// (Older libraries may leave out a connection's first number, after a Hello that came late: such a
/// peer is given up once, and connects again.)
void Engine::note_missing(Peer& peer) const {
  const uint64_t missing = peer.heard.missing();
  if (missing == std::exchange(peer.missing, missing)) return;
  peer.pulse.missing_ns = missing == 0 ? Pulse::kNothing : awake_.now_ns();
  peer.overtaken_by = 0;
}

/// The peer whose connection the message names; none: the sender is unknown, or it is an earlier
/// connection. A Welcome names our fresh number, so it counts whatever Hello came before it.
std::optional<uint64_t> Engine::sender_of(const Message& message) {
  std::optional<uint64_t> id;
  if (message.version < 2) {
    id = find_peer(message.from);
  } else if (const auto found = peer_of_session_.find(message.session.to);
             found != peer_of_session_.end()) {
    id = found->second;
  }
  const Peer* peer = id ? peers_.find(*id) : nullptr;
  if (peer == nullptr || (peer->is_leaving && !std::holds_alternative<Goodbye>(message.body)))
    return std::nullopt;
  if (peer->engine != message.from || peer->version != message.version) return std::nullopt;
  const bool is_known = peer->their_session != 0 || peer->version < 2;
  const bool is_welcome = std::holds_alternative<Welcome>(message.body);
  const bool is_fresh = is_welcome && peer->state == PeerState::kConnecting;
  if (is_known ? peer->their_session != message.session.from && !is_fresh : !is_welcome)
    return std::nullopt;
  return id;
}

/// What has arrived was of a connection that the peer has ended already: its Hello came late, or
/// again. It does not know our number, so the Welcome that names it is of the connection that
/// lives.
void Engine::forget_arrival(uint64_t id) {
  Peer& peer = *peers_.find(id);
  if (options_.processes != nullptr) options_.processes->forget(id);
  peer.has_arrived = false;
  peer.credits = 0;
  peer.sequence = 0;  // the connection that lives has heard nothing
  peer.heard = {};
  peer.told.clear();
  for (Arrivals& over : peer.arrivals) over = {};
  note_missing(peer);
  for (size_t i = 0; i < peer.routes.size(); ++i) {
    if (peer.routes[i].peer == peer.messages[i]) continue;
    worker_.rail(i).disconnect(peer.routes[i].peer);
    peer.routes[i].peer = peer.messages[i];
  }
}

void Engine::handle_hello(const Message& message, const Hello& hello) {
  const bool is_whole = hello.doors.empty() || hello.doors.size() == hello.address.rails.size();
  if (hello.address.engine != message.from || message.from == address_.engine || !is_whole ||
      (message.version >= 2 && message.session.from == 0)) {
    ++statistics_.malformed;
    return;
  }
  if (mailboxes_.size() > 1 && has_greeted(message)) return;  // over another rail
  const std::optional<uint64_t> id = peer_of_hello(message, hello);
  if (!id) {
    ++statistics_.refused;
    return;
  }
  peers_.find(*id)->their_session = message.session.from;
  arrived(*id, hello);
  const Peer* peer = find_live(*id);  // null: it was given up
  if (peer == nullptr || peer->state == PeerState::kFailed) return;
  Welcome welcome{options_.credits, doors_for(*peer), {}};
  if (options_.processes != nullptr) welcome.origin = options_.processes->self();
  tell_over_all(*id, working_rails(*peer), std::move(welcome));
  peer = find_live(*id);
  if (peer != nullptr && peer->version < 2 && peer->state == PeerState::kConnecting) connected(*id);
}

bool Engine::has_greeted(const Message& hello) const {
  bool has = false;
  peers_.for_each([&](uint64_t, const Peer& peer) {
    has = has || (peer.engine == hello.from && peer.their_session == hello.session.from);
  });
  return has;
}

/// The peer that says hello: one that this engine connects to at the same time, or a new one. An
/// engine may connect anew while its earlier connection still counts here.
std::optional<uint64_t> Engine::peer_of_hello(const Message& message, const Hello& hello) {
  const std::optional<uint64_t> known = find_peer(message.from);
  if (known) {
    const Peer& peer = *peers_.find(*known);
    const bool is_awaited = peer.state == PeerState::kConnecting && !peer.has_arrived;
    if (is_awaited && !peer.is_leaving && peer.version == message.version) return known;
    if (peer.version < 2 || peer.their_session == message.session.from) return std::nullopt;
  }
  if (find_newcomer(message.from) || handshakes_ >= options_.newcomers_max) return std::nullopt;
  if (!options_.accepts_peers) return std::nullopt;
  const Result<uint64_t> added = add_peer(hello.address);
  if (!added.ok()) return std::nullopt;
  peers_.find(added.value())->is_newcomer = true;
  ++handshakes_;
  add_deadline(now_ns_ + options_.handshake_ns, Due::kPeer, added.value());
  return added.value();
}

/// Handles what Hello and Welcome have in common.
template <typename Arrival>
void Engine::arrived(uint64_t id, const Arrival& arrival) {
  Peer& peer = *peers_.find(id);
  if (peer.has_arrived) return;
  peer.has_arrived = true;
  add_credits(peer, arrival.credits);  // Credit messages may have come before
  const bool is_whole = arrival.doors.empty() || arrival.doors.size() == peer.address.rails.size();
  if (!is_whole || !connect_doors(peer, arrival.doors).ok())
    return fail_peer(id, PeerFailure::kNetwork);
  if (options_.processes != nullptr) options_.processes->watch(id, arrival.origin);
}

void Engine::handle_from(uint64_t id, const Welcome& welcome) {
  arrived(id, welcome);
  const Peer* peer = find_live(id);
  if (peer == nullptr) return;
  if (peer->state == PeerState::kConnecting) connected(id);
  // The beat makes the peer connected, too.
  if (peer->version >= 2 && peer->state == PeerState::kConnected)
    tell_over_all(id, working_rails(*peer), Beat{});
}

void Engine::add_credits(Peer& peer, uint32_t credits) {
  peer.credits += std::min(credits, ~peer.credits);
}

void Engine::handle_from(uint64_t peer, Data&& data) {
  data_arrived(peer, std::move(data.payload), {});
}

void Engine::data_arrived(uint64_t peer, std::vector<std::byte>&& payload, Bytes following) {
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
  inbox_.push_back({peer, std::move(payload), {following.begin(), following.end()}});
  completions_.message_arrived();
}

void Engine::handle_from(uint64_t peer, const Credit& credit) {
  add_credits(*peers_.find(peer), credit.credits);
}

void Engine::handle_from(uint64_t peer, const Goodbye& goodbye) {
  fail_peer(peer,
            goodbye.why == Goodbye::Why::kSilence ? PeerFailure::kGaveUs : PeerFailure::kLeft);
  if (goodbye.awaits_answer && find_live(peer) != nullptr) tell(peer, Goodbye{});
  add_deadline(now_ns_ + options_.shut_ns, Due::kShut, peer);
}

}  // namespace braid::fabric
