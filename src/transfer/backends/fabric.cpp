#include "transfer/backends/fabric.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "base/clock.h"
#include "fabric/local/domain.h"
#include "transfer/providers.h"

namespace braid::transfer {
namespace {

/// The side with the higher incarnation gives the other one this much time to dial first.
constexpr uint64_t kYieldNs = 30'000'000;
/// Longer than an owner waits for a silent peer before it shuts its doors (fabric's heartbeat).
constexpr uint64_t kUnreachableNs = 10'000'000'000;
constexpr uint64_t kFarewellNs = 100'000'000;
constexpr uint64_t kLastWordsNs = 1'000'000'000;

bool reaches(const std::string& provider, const Buffer& buffer) {
  if (buffer.lane == nullptr) return true;
  return provider == kLocal ? fabric::local::check_shareable(buffer.memory).ok()
                            : reaches_gpus(provider);
}

}  // namespace

FabricBackend::FabricBackend(std::vector<std::unique_ptr<Rail>> rails, const Incarnation& self)
    : rails_(std::move(rails)), self_(self) {}

FabricBackend::~FabricBackend() { take_leave(); }

/// Waits until notifications are answered, because peers close their links once they hear the
/// farewell.
void FabricBackend::say_last_notifications() {
  const uint64_t end_ns = monotonic_ns() + kLastWordsNs;
  const auto is_awaited = [this](const Incarnation& who) { return !peers_.at(who).up.empty(); };
  while (monotonic_ns() < end_ns && std::any_of(unanswered_.begin(), unanswered_.end(), is_awaited))
    (void)step(monotonic_ns());
}

/// Says farewell to all peers. It waits for a peer that does not listen no longer than kFarewellNs.
void FabricBackend::take_leave() {
  say_last_notifications();
  for (const auto& [link, who] : who_) rails_[link.rail]->send(link.link, Leaving{});
  const uint64_t end_ns = monotonic_ns() + kFarewellNs;
  const auto say = [&] {
    bool is_under_way = true;
    while (is_under_way && monotonic_ns() < end_ns) {
      is_under_way = false;
      for (const auto& rail : rails_) {
        (void)rail->step(monotonic_ns());
        is_under_way = is_under_way || rail->has_messages_under_way();
      }
    }
  };
  say();
  for (const auto& rail : rails_) rail->say_goodbye();
  say();
}

// ---- Buffers ----

Result<Reached> FabricBackend::add_buffer(const Buffer& buffer) {
  Reached reached;
  for (size_t i = 0; i < rails_.size(); ++i) {
    if (!reaches(rails_[i]->provider(), buffer)) continue;
    const Status added = rails_[i]->add_buffer(buffer);
    if (added.ok())
      reached.rails |= uint64_t{1} << i;
    else
      reached.refusals.push_back({i, added.message()});
  }
  if (reached.rails != 0 || reached.refusals.empty()) return reached;
  return Status::error("every rail refuses this memory: " + reached.refusals.front().why);
}

void FabricBackend::retire_buffer(uint64_t buffer) {
  for (const auto& rail : rails_) rail->retire_buffer(buffer);
}

bool FabricBackend::holds_buffer(uint64_t buffer) const {
  return std::any_of(rails_.begin(), rails_.end(),
                     [&](const auto& rail) { return rail->holds_buffer(buffer); });
}

// ---- Ways ----

Status FabricBackend::add_way(uint32_t id, const Incarnation& who, size_t rail,
                              std::vector<std::byte> address) {
  const Result<uint64_t> engine = rails_[rail]->number_of(address);
  if (!engine.ok()) return engine.status();
  Way way;
  way.peer = who;
  way.rail = rail;
  way.address = std::move(address);
  way.engine = engine.value();
  Peer& peer = peers_[who];
  // It was given up, and could be asked for its address since.
  if (peer.ways.empty()) peer.is_lost = false;
  peer.ways.push_back(id);
  peer.heard_ns = now_ns_ = monotonic_ns();
  expect(who, peer);
  want_dial(id, ways_[id] = std::move(way), now_ns_);
  dial_due();
  return {};
}

void FabricBackend::remove_peer(const Incarnation& who) {
  const auto found = peers_.find(who);
  if (found == peers_.end()) return;
  for (const uint32_t id : found->second.ways) {
    Way& way = ways_.at(id);
    fencing_ -= way.fence != FenceState::kNone;
    dialling_.erase(id);
    if (way.link == 0) continue;
    const LinkOfRail link{way.rail, way.link};
    if (!rails_[way.rail]->serves(way.link)) {
      rails_[way.rail]->close(way.link);
      forget_link(link);
    }
    way_of_link_.erase(link);
  }
  end_files_asked(who, Cause::kNoSegment);
  for (const uint32_t id : found->second.ways) ways_.erase(id);
  found->second.ways.clear();
  expect(who, found->second);
}

bool FabricBackend::is_up(uint32_t way) const {
  const auto found = ways_.find(way);
  return found != ways_.end() && found->second.is_up;
}

uint64_t FabricBackend::generation(uint32_t way) const {
  const auto found = ways_.find(way);
  return found == ways_.end() ? 0 : found->second.generation;
}

void FabricBackend::post(uint32_t id, const Piece& piece) {
  Way& way = ways_.at(id);
  if (!way.is_up || way.fence != FenceState::kNone)
    return events_.push_back(PieceEnd{piece.id, Cause::kPathFailed, false});
  rails_[way.rail]->post(way.link, piece);
}

void FabricBackend::give_up(uint32_t id, uint64_t piece) {
  const Way& way = ways_.at(id);
  if (way.is_up) rails_[way.rail]->give_up(way.link, piece);
}

void FabricBackend::probe(uint32_t id, uint64_t probe) {
  const auto found = ways_.find(id);
  if (found == ways_.end()) return events_.push_back(PieceEnd{probe, Cause::kPathFailed, false});
  Way& way = found->second;
  // Nobody dials a peer that is lost, so nothing would end the probe.
  if (!way.is_up && peers_.at(way.peer).is_lost)
    return events_.push_back(PieceEnd{probe, Cause::kPathFailed, false});
  way.probes.push_back(probe);
  if (way.is_up) return rails_[way.rail]->ping(way.link, probe);
  way.dial_until_ns = now_ns_ + kWantedNs;
  want_dial(id, way, now_ns_);
  dial_due();
}

void FabricBackend::end_probes(Way& way) {
  for (const uint64_t probe : std::exchange(way.probes, {}))
    events_.push_back(PieceEnd{probe, Cause::kPathFailed, false});
}

void FabricBackend::probe_answered(LinkOfRail link, uint64_t id) {
  const auto way = way_of_link_.find(link);
  if (way == way_of_link_.end()) return;
  if (std::erase(ways_.at(way->second).probes, id) > 0)
    events_.push_back(PieceEnd{id, Cause::kNone, false});
}

// ---- Links ----

void FabricBackend::handle(size_t rail, const RailEvent& event) {
  if (const auto* end = std::get_if<PieceEnd>(&event)) return events_.push_back(*end);
  if (const auto* up = std::get_if<LinkUp>(&event)) return link_up(rail, *up);
  if (const auto* lost = std::get_if<LinkLost>(&event)) return link_lost({rail, lost->link}, *lost);
  if (const auto* fenced = std::get_if<LinkFenced>(&event))
    return link_fenced({rail, fenced->link});
  if (const auto* answer = std::get_if<LinkAnswers>(&event))
    return probe_answered({rail, answer->link}, answer->token);
  const auto& message = std::get<LinkMessage>(event);
  handle_message({rail, message.link}, message.message);
}

void FabricBackend::link_up(size_t rail, const LinkUp& up) {
  const LinkOfRail link{rail, up.link};
  Peer& peer = peers_[up.who];
  if (!who_.contains(link)) peer.up.push_back(link);
  who_[link] = up.who;
  peer.heard_ns = now_ns_;
  expect(up.who, peer);
  peer.sender.say_all_again();
  for (const uint32_t id : peer.ways) {
    Way& way = ways_.at(id);
    if (way.rail != rail || way.engine != up.engine) continue;
    if (way.link != 0 && way.link != up.link) continue;
    if (!way.is_up) events_.push_back(WayUp{id});
    way.link = up.link;
    way.is_up = true;
    way.dial_until_ns = way.dials = 0;
    dialling_.erase(id);
    way.generation = rails_[rail]->generation(up.link);
    way.peer_number = rails_[rail]->peer_of(up.link);
    way_of_link_[link] = id;
    for (const uint64_t probe : way.probes) rails_[rail]->ping(way.link, probe);
  }
}

/// Forgets a link that carries nothing more for this side.
void FabricBackend::forget_link(LinkOfRail link) {
  const auto known = who_.find(link);
  if (known != who_.end()) {
    Peer& peer = peers_[known->second];
    std::erase(peer.up, link);
    peer.heard_ns = now_ns_;
    expect(known->second, peer);
    who_.erase(known);
  }
  std::erase_if(fences_asked_, [&](const FenceAsked& asked) { return asked.over == link; });
  for (auto& [token, asked] : files_asked_)
    if (asked.over == link) asked.over.reset();
  for (auto& [id, way] : ways_)
    if (way.fence == FenceState::kAsked && way.asked_over == link) way.fence = FenceState::kWanted;
  const auto id = way_of_link_.find(link);
  if (id == way_of_link_.end()) return;
  Way& way = ways_.at(id->second);
  way.is_up = false;
  const bool is_other_first = self_ > way.peer;
  way.dial_ns = std::max(way.dial_ns, now_ns_ + (is_other_first ? kYieldNs : 0));
  end_probes(way);
}

void FabricBackend::link_lost(LinkOfRail link, const LinkLost& lost) {
  ++statistics_.links_lost;
  const auto known = who_.find(link);
  const std::optional<Incarnation> who =
      known == who_.end() ? std::nullopt : std::optional(known->second);
  const auto way = way_of_link_.find(link);
  if (way != way_of_link_.end() && ways_.at(way->second).is_up)
    events_.push_back(WayFailed{way->second});
  if (way != way_of_link_.end() && lost.is_of_other_version)
    other_version(way->second, ways_.at(way->second));
  forget_link(link);
  if (who && lost.why == fabric::PeerFailure::kEnded) owner_ended(*who);
}

void FabricBackend::link_fenced(LinkOfRail link) {
  const auto id = way_of_link_.find(link);
  if (id == way_of_link_.end()) return;
  Way& way = ways_.at(id->second);
  way.link = 0;
  want_dial(id->second, way, way.dial_again_ns);
  way_of_link_.erase(id);
}

void FabricBackend::owner_ended(const Incarnation& who) {
  peers_[who].has_ended = true;
  lose_peer(who);
}

void FabricBackend::lose_peer(const Incarnation& who) {
  Peer& peer = peers_[who];
  if (peer.is_lost) return;
  peer.is_lost = true;
  expect(who, peer);
  end_files_asked(who, Cause::kPeerLost);
  for (const uint32_t id : peer.ways) {
    dialling_.erase(id);
    if (Way& way = ways_.at(id); !way.is_up) end_probes(way);
  }
  if (!peer.ways.empty()) events_.push_back(OwnerLost{peer.ways.front()});
  const std::vector<LinkOfRail> up = peer.up;
  for (const LinkOfRail& link : up) {
    rails_[link.rail]->close(link.link);
    forget_link(link);
  }
}

/// Sets when the peer has been silent for too long. A peer with a link never is; one that is lost
/// is kept while it has ways.
void FabricBackend::expect(const Incarnation& who, const Peer& peer) {
  kept_.erase(who);
  if (!peer.up.empty() || (peer.is_lost && !peer.ways.empty()))
    silent_.erase(who);
  else
    silent_.set(who, peer.is_lost ? 0 : peer.heard_ns + kUnreachableNs);
}

void FabricBackend::look_after_peers() {
  while (const std::optional<Incarnation> who = silent_.take(now_ns_)) {
    const Peer& peer = peers_.at(*who);
    const bool has_numbers = peer.sender.has_sent() || peer.receiver.has_received();
    if (!peer.ways.empty())
      lose_peer(*who);
    else if (has_numbers && !peer.has_ended)
      kept_.set(*who, now_ns_);
    else
      forget_peer(*who);
  }
  while (kept_.size() > kKeptMax) forget_peer(*kept_.take(std::numeric_limits<uint64_t>::max()));
}

void FabricBackend::forget_peer(const Incarnation& who) {
  unanswered_.erase(who);
  peers_.erase(who);
}

// ---- Messages ----

void FabricBackend::handle_message(LinkOfRail link, const RailMessage& message) {
  const auto who = who_.find(link);
  if (who == who_.end()) return;
  if (const auto* request = std::get_if<FenceRequest>(&message))
    fence_asked({link, who->second, *request});
  else if (const auto* fenced = std::get_if<FenceAnswer>(&message))
    fence_answered(who->second, fenced->token);
  else if (const auto* notification = std::get_if<Notification>(&message))
    handle_notification(link, *notification);
  else if (const auto* answer = std::get_if<NotificationAnswer>(&message))
    notification_answered(who->second, *answer);
  else if (const auto* file = std::get_if<FileOpened>(&message))
    file_opened(who->second, *file);
  else if (std::get_if<Leaving>(&message) != nullptr)
    owner_ended(Incarnation(who->second));
}

// ---- Steps ----

bool FabricBackend::step(uint64_t now_ns) {
  now_ns_ = now_ns;
  bool is_busy = false;
  for (size_t rail = 0; rail < rails_.size(); ++rail) {
    is_busy = rails_[rail]->step(now_ns) || is_busy;
    for (const RailEvent& event : rails_[rail]->take_events()) handle(rail, event);
  }
  if (fencing_ > 0) look_after_fences();
  if (!fences_asked_.empty()) answer_fences();
  look_after_peers();
  dial_due();
  send_notifications();
  if (!files_asked_.empty()) ask_for_files();
  deliver_own();
  return is_busy || !events_.empty();
}

void FabricBackend::push() {
  for (const auto& rail : rails_) (void)rail->push();
}

uint64_t FabricBackend::next_deadline_ns() const {
  uint64_t next_ns = std::numeric_limits<uint64_t>::max();
  for (const auto& rail : rails_) next_ns = std::min(next_ns, rail->next_deadline_ns());
  next_ns = std::min(next_ns, silent_.next_ns());
  for (const Incarnation& who : unanswered_)
    if (const Peer& peer = peers_.at(who); !peer.up.empty())
      next_ns = std::min(next_ns, peer.sender.next_ns());
  for (const auto& [token, asked] : files_asked_)
    if (asked.over && !asked.answer) next_ns = std::min(next_ns, asked.asked_ns + kAskAgainNs);
  if (!to_self_.empty() && notified_.size() < notification_room_) return 0;
  next_ns = std::min(next_ns, std::max(dialling_.next_ns(), dials_.next_ns()));
  if (fencing_ > 0 || !fences_asked_.empty()) next_ns = std::min(next_ns, now_ns_ + 1'000'000);
  return next_ns;
}

std::vector<int> FabricBackend::wait_descriptors() const {
  std::vector<int> all;
  for (const auto& rail : rails_)
    for (const int descriptor : rail->wait_descriptors()) all.push_back(descriptor);
  return all;
}

bool FabricBackend::has_to_be_asked() const {
  return std::any_of(rails_.begin(), rails_.end(), [](const auto& rail) {
    return rail->waits_for_room() || (rail->wait_descriptors().empty() && rail->has_links());
  });
}

bool FabricBackend::arm() {
  bool is_armed = true;
  for (const auto& rail : rails_) {
    if (rail->wait_descriptors().empty()) continue;
    is_armed = rail->arm() && is_armed;
  }
  return is_armed;
}

}  // namespace braid::transfer
