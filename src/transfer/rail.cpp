// Rail: its links, from the first hello until nothing of them can land any more.
#include "transfer/rail.h"

#include <algorithm>
#include <utility>

#include "base/try.h"
#include "host/random_number.h"
#include "transfer/failure.h"

namespace braid::transfer {
namespace {

constexpr uint64_t kHelloNs = 5'000'000'000;  // that a peer has for its first message
constexpr size_t kOutboxMax = 1 << 14;

}  // namespace

Result<std::unique_ptr<Rail>> Rail::open(std::unique_ptr<fabric::Domain> domain,
                                         const Incarnation& self, const fabric::Secret& secret,
                                         std::shared_ptr<fabric::Processes> processes,
                                         Owned& owned) {
  fabric::EngineOptions options;
  options.engine = random_number();
  options.secret = secret;
  options.processes = std::move(processes);
  const fabric::Traits wire = domain->traits();
  std::vector<std::unique_ptr<fabric::Domain>> domains;
  domains.push_back(std::move(domain));
  BRAID_LET(engine, fabric::Engine::open(std::move(domains), options));
  return std::unique_ptr<Rail>(
      new Rail(std::move(engine), wire, self, secret, owned));  // owner: the caller
}

Rail::Rail(std::unique_ptr<fabric::Engine> engine, const fabric::Traits& wire,
           const Incarnation& self, const fabric::Secret& secret, Owned& owned)
    : engine_(std::move(engine)),
      self_(self),
      secret_(secret),
      owned_(owned),
      buffers_(owned.buffers),
      provider_(engine_->address().rails.front().provider),
      answers_writes_(wire.answers_writes) {}

std::vector<std::byte> Rail::address() const { return fabric::encode(engine_->address(), secret_); }

Result<uint64_t> Rail::number_of(Bytes address) const {
  BRAID_LET(decoded, from_fabric(fabric::decode_address(address, secret_)));
  return decoded.engine;
}

// ---- Links ----

Result<uint64_t> Rail::dial(const Incarnation& who, Bytes bytes, uint64_t deadline_ns) {
  BRAID_LET(address, from_fabric(fabric::decode_address(bytes, secret_)));
  BRAID_LET(peer, from_fabric(engine_->connect(address, deadline_ns)));
  const uint64_t id = add_link(peer, address.engine, true);
  links_.find(id)->who = who;
  return id;
}

uint64_t Rail::add_link(uint64_t peer, uint64_t engine, bool is_dialled) {
  Link link;
  link.peer = peer;
  link.engine = engine;
  link.is_dialled = is_dialled;
  link.awaits_hello_ns = now_ns_;
  link.generation = ++generations_;
  const uint64_t id = links_.add(std::move(link));
  link_of_peer_[peer] = id;
  unsettled_.push_back(id);
  return id;
}

bool Rail::is_up(uint64_t id) const {
  const Link* link = links_.find(id);
  return link != nullptr && link->has_heard_hello && !link->is_closed;
}

bool Rail::is_open(uint64_t id) const {
  const Link* link = links_.find(id);
  return link != nullptr && !link->is_closed;
}

bool Rail::serves(uint64_t id) const {
  const Link* link = links_.find(id);
  return link != nullptr && !link->is_closed &&
         (!link->grants.empty() || !link->lent.empty() || link->stage != nullptr ||
          link->has_served_small);
}

uint64_t Rail::generation(uint64_t id) const {
  const Link* link = links_.find(id);
  return link == nullptr ? 0 : link->generation;
}

uint64_t Rail::peer_of(uint64_t id) const {
  const Link* link = links_.find(id);
  return link == nullptr ? 0 : link->peer;
}

void Rail::close(uint64_t id, bool is_broken) {
  if (links_.find(id) != nullptr) end_link(id, is_broken);
}

bool Rail::fence_from(uint64_t engine, uint64_t generation, const Incarnation& who) {
  std::vector<uint64_t> stale;
  links_.for_each([&](uint64_t id, const Link& link) {
    if (link.engine == engine && link.who == who && link.their_generation <= generation)
      stale.push_back(id);
  });
  for (const uint64_t id : stale) {
    Link& link = *links_.find(id);
    if (!link.is_closed) lose(id, fabric::PeerFailure::kReplaced);
    if (!std::exchange(link.is_shut_there, true)) engine_->has_shut(link.peer);
  }
  return stale.empty();
}

void Rail::lose(uint64_t id, fabric::PeerFailure why, bool is_of_other_version) {
  Link* link = links_.find(id);
  if (link == nullptr || link->is_closed) return;
  events_.push_back(LinkLost{id, why, is_of_other_version});
  end_link(id, why == fabric::PeerFailure::kSilent || why == fabric::PeerFailure::kReplaced);
}

/// Reads under way end once the link is fenced; writes under way end with their tickets.
void Rail::end_link(uint64_t id, bool is_broken) {
  Link& link = *links_.find(id);
  if (link.is_closed) return;
  link.is_closed = true;
  if (std::find(unsettled_.begin(), unsettled_.end(), id) == unsettled_.end())
    unsettled_.push_back(id);
  for (auto* unposted : {&link.waiting, &link.writes, &link.reads, &link.small_reads})
    for (const Piece& piece : std::exchange(*unposted, {})) ended(piece.id, Cause::kPathFailed);
  link.counts.failures += link.small_asked.size();
  for (const auto& [number, piece] : std::exchange(link.small_asked, {}))
    ended(number, Cause::kPathFailed);  // an answer that comes later is dropped
  end_file_pieces(id);
  end_file_reads(link);
  for (const auto& [buffer, grant] : link.grants) link.closed_grants.push_back(grant.grant);
  for (const auto& [buffer, loan] : link.loans) link.closed_grants.push_back(loan.grant);
  link.outbox.clear();
  link.refusals.clear();
  link_of_peer_.erase(link.peer);
  (void)engine_->disconnect(link.peer, is_broken);
}

bool Rail::is_fenced(Link& link) {
  std::erase_if(link.closed_grants, [&](uint64_t grant) {
    const Result<fabric::Fence> fence = engine_->fence(grant);
    if (fence.ok() && fence.value() != fabric::Fence::kFenced) return false;
    (void)engine_->forget_grant(grant);
    return true;
  });
  if (!link.closed_grants.empty() || link.file_writes > 0) return false;
  if (link.stage_region != 0 && !engine_->remove_region(link.stage_region).ok()) return false;
  link.stage_region = 0;
  return true;
}

void Rail::accept_links() {
  while (const std::optional<uint64_t> peer = engine_->accept()) {
    if (link_of_peer_.contains(*peer)) continue;
    add_link(*peer, engine_->engine_of(*peer).value_or(0), false);
  }
}

/// Called once the messages have been taken: a peer's last ones say why it goes.
void Rail::lose_failed_links() {
  while (const std::optional<uint64_t> peer = engine_->next_failed()) {
    const auto why = engine_->peer_failure(*peer);
    const auto link = link_of_peer_.find(*peer);
    if (link == link_of_peer_.end())
      (void)engine_->disconnect(*peer);
    else
      lose(link->second, why.ok() ? why.value() : fabric::PeerFailure::kNetwork);
  }
}

/// A stranger may say none; and a connection that breaks may swallow the hello of either side.
bool Rail::awaits_hello_too_long(const Link& link) const {
  if (link.has_heard_hello || (link.is_dialled && !link.has_said_hello)) return false;
  return now_ns_ > link.awaits_hello_ns + kHelloNs;
}

void Rail::look_after_links() {
  for (size_t i = 0; i < unsettled_.size(); ++i) {
    const uint64_t id = unsettled_[i];
    Link& link = *links_.find(id);
    if (link.is_closed) continue;
    const Result<fabric::PeerState> state = engine_->peer_state(link.peer);
    const bool is_connected = state.ok() && state.value() == fabric::PeerState::kConnected;
    if (is_connected && link.is_dialled && !link.has_said_hello) say_hello(id, link);
    if (!awaits_hello_too_long(link)) continue;
    link.is_dialled ? lose(id, fabric::PeerFailure::kSilent) : end_link(id, false);
  }
  std::vector<uint64_t> fenced;
  std::erase_if(unsettled_, [&](uint64_t id) {
    Link& link = *links_.find(id);
    if (!link.is_closed) return link.has_heard_hello;
    if (!is_fenced(link)) return false;
    fenced.push_back(id);
    return true;
  });
  for (const uint64_t id : fenced) {
    std::vector<uint64_t> reads;
    under_way_.for_each([&](uint64_t request, const UnderWay& each) {
      if (each.link == id && each.doing == Doing::kReading) reads.push_back(request);
    });
    for (const uint64_t request : reads) read_ended(request, Cause::kPathFailed);
    links_.erase(id);
    events_.push_back(LinkFenced{id});
  }
}

// ---- Messages ----

void Rail::say_hello(uint64_t id, Link& link) {
  link.has_said_hello = true;
  link.awaits_hello_ns = now_ns_;  // a peer that was dialled answers it
  send(id, Hello{self_, number(), link.generation});
}

void Rail::send(uint64_t id, const RailMessage& message, Bytes following) {
  Link* link = links_.find(id);
  if (link == nullptr || link->is_closed) return;
  link->outbox.push_back({encode(message), {following.begin(), following.end()}});
  if (link->outbox.size() > kOutboxMax) return lose(id, fabric::PeerFailure::kTooMuch);
  mark(id, *link);
}

void Rail::mark(uint64_t id, Link& link) {
  if (link.is_marked) return;
  link.is_marked = true;
  marked_.push_back(id);
}

void Rail::flush(uint64_t id) {
  Link* link = links_.find(id);
  if (link == nullptr || link->is_closed) return;
  link->is_marked = false;
  post_writes(id, *link);
  post_small_reads(id, *link);
  post_reads(id, *link);
  if (link->is_closed) return;
  for (size_t i = 0; i < link->refusals.size(); i += kReadsInMessage) {
    const auto first = link->refusals.begin() + static_cast<ptrdiff_t>(i);
    const auto last =
        first + static_cast<ptrdiff_t>(std::min(kReadsInMessage, link->refusals.size() - i));
    link->outbox.push_back({encode(Refused{{first, last}}), {}});
  }
  link->refusals.clear();
  // The peer asks for more and more without taking the answers.
  if (link->outbox.size() > kOutboxMax) return lose(id, fabric::PeerFailure::kTooMuch);
  const auto sends = [&](const Outgoing& next) {
    return engine_->send(link->peer, next.message, next.following).ok();
  };
  while (!link->outbox.empty() && sends(link->outbox.front())) link->outbox.pop_front();
  if (!link->outbox.empty()) mark(id, *link);
}

void Rail::receive_messages() {
  while (const std::optional<fabric::Received> received = engine_->receive()) {
    const auto link = link_of_peer_.find(received->peer);
    if (link == link_of_peer_.end()) continue;
    const uint64_t id = link->second;
    const Result<RailMessage> message = decode_rail_message(received->payload);
    if (message.ok())
      handle(id, message.value(), received->following);
    else
      lose(id, fabric::PeerFailure::kTooMuch);
  }
}

void Rail::handle(uint64_t id, const RailMessage& message, Bytes following) {
  if (const auto* hello = std::get_if<Hello>(&message)) return handle_hello(id, *hello);
  Link& link = *links_.find(id);
  // Messages have no order, but each side sends others only after both hellos. The dialling side
  // knows its peer before its hello.
  if (!link.has_heard_hello && !link.is_dialled) return;
  if (const auto* grant_request = std::get_if<GrantRequest>(&message))
    return grant(link, *grant_request);
  if (const auto* lend = std::get_if<Lend>(&message)) return borrow(link, *lend);
  if (const auto* read = std::get_if<SmallRead>(&message)) return serve(link, *read);
  if (const auto* answer = std::get_if<SmallReadAnswer>(&message))
    return take_answer(id, link, *answer, following);
  if (const auto* reads = std::get_if<Reads>(&message)) return serve(id, link, *reads);
  if (const auto* answer = std::get_if<GrantAnswer>(&message))
    return take_answer(id, link, *answer);
  if (const auto* lent = std::get_if<Lent>(&message)) return take_answer(id, link, *lent);
  if (const auto* refused = std::get_if<Refused>(&message)) return take_refusals(link, *refused);
  if (const auto* open = std::get_if<FileOpen>(&message)) return open_file(id, link, *open);
  if (std::get_if<StageRequest>(&message) != nullptr) return make_stage(id, link);
  if (const auto* stage = std::get_if<StageAnswer>(&message)) return take_answer(id, link, *stage);
  if (const auto* write = std::get_if<FileWrite>(&message)) return write_file(id, link, *write);
  if (const auto* written = std::get_if<FileWritten>(&message))
    return take_answer(id, link, *written);
  if (const auto* read = std::get_if<ReadGivenUp>(&message)) return given_up(id, *read);
  if (const auto* write = std::get_if<WriteGivenUp>(&message)) return given_up(id, link, *write);
  if (const auto* ping = std::get_if<Ping>(&message)) return send(id, Pong{ping->token});
  if (const auto* pong = std::get_if<Pong>(&message))
    return events_.push_back(LinkAnswers{id, pong->token});
  events_.push_back(LinkMessage{id, message});
}

void Rail::handle_hello(uint64_t id, const Hello& hello) {
  Link& link = *links_.find(id);
  if (link.has_heard_hello) return;
  const bool is_spoken = hello.version_oldest <= kVersion && hello.version >= kVersionOldest;
  const bool is_expected = !link.is_dialled || hello.incarnation == link.who;
  if (!is_spoken || !is_expected || hello.engine != link.engine)
    return lose(id, fabric::PeerFailure::kReplaced,
                !is_spoken && is_expected && hello.engine == link.engine);
  link.has_heard_hello = true;
  link.who = link.counts.who = hello.incarnation;
  link.their_generation = hello.generation;
  link.version = std::min(hello.version, kVersion);
  if (!link.has_said_hello) say_hello(id, link);
  events_.push_back(LinkUp{id, link.who, link.engine, link.is_dialled});
}

// ---- Steps ----

bool Rail::step(uint64_t now_ns) {
  now_ns_ = now_ns;
  bool is_busy = engine_->step(now_ns);
  accept_links();
  receive_messages();
  lose_failed_links();
  take_completions();
  if (!unsettled_.empty()) look_after_links();
  if (!retired_.empty()) look_after_buffers();
  if (!given_up_.empty()) look_after_given_up();
  is_busy = push() || is_busy;
  return is_busy || !events_.empty();
}

uint64_t Rail::next_deadline_ns() const {
  uint64_t next_ns = engine_->next_deadline_ns();
  for (const GivenUp& each : given_up_) next_ns = std::min(next_ns, each.asked_ns + kAskAgainNs);
  return next_ns;
}

bool Rail::push() {
  for (const uint64_t id : std::exchange(marked_, {})) flush(id);
  return engine_->post();
}

void Rail::take_completions() {
  while (const std::optional<fabric::Happening> happening = engine_->completions().next()) {
    UnderWay* found = under_way_.find(happening->request);
    if (found == nullptr) continue;
    if (found->doing == Doing::kReading) {
      if (!happening->is_cancelled) read_ended(happening->request, Cause::kNone);
      continue;
    }
    const UnderWay each = std::move(*found);
    under_way_.erase(happening->request);
    const bool is_done = !happening->is_cancelled &&
                         happening->value == static_cast<uint64_t>(fabric::TicketState::kDone);
    switch (each.doing) {
      case Doing::kWriting: write_ended(each, is_done); break;
      case Doing::kServing: served(each, is_done); break;
      case Doing::kServingFile: part_served(each, is_done); break;
      case Doing::kStaging: part_staged(each, is_done); break;
      case Doing::kReading: break;
    }
    engine_->forget(each.ticket);
  }
}

void Rail::ended(uint64_t piece, Cause cause, bool may_land, bool is_unexplained) {
  events_.push_back(PieceEnd{piece, cause, may_land, is_unexplained});
}

std::vector<LinkStatistics> Rail::statistics() const {
  std::unordered_map<uint64_t, uint64_t> endpoints;
  for (const auto& route : engine_->routes()) endpoints[route.peer] = route.endpoints;
  std::vector<LinkStatistics> all;
  links_.for_each([&](uint64_t, const Link& link) {
    all.push_back(link.counts);
    all.back().is_up = link.has_heard_hello && !link.is_closed;
    all.back().endpoints = endpoints[link.peer];
  });
  return all;
}

}  // namespace braid::transfer
