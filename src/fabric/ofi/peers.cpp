#include "fabric/ofi/peers.h"

#include <algorithm>
#include <utility>

namespace braid::fabric::ofi {

uint32_t Peers::add(Peer peer) {
  if (peer.link.is_live()) ++live_links_[peer.link.name()];
  if (free_.empty()) {
    peers_.push_back(std::move(peer));
    return static_cast<uint32_t>(peers_.size() - 1);
  }
  const uint32_t number = free_.back();
  free_.pop_back();
  peers_[number] = std::move(peer);
  return number;
}

/// The number stays in use until all postings to it have come back.
void Peers::disconnect(uint32_t number) {
  Peer& leaving = peers_.at(number);
  leaving.endpoint = nullptr;
  forget_live_link(leaving.link);
  leaving.link = Link();
  leaving.is_disconnected = true;
  if (leaving.under_way == 0) free_number(number);
}

void Peers::ended(uint32_t number) {
  Peer& peer = peers_[number];
  if (--peer.under_way == 0 && peer.is_disconnected) free_number(number);
}

void Peers::free_number(uint32_t number) {
  peers_[number].guarded = Guarded();
  free_.push_back(number);
}

void Peers::clear() {
  peers_.clear();
  free_.clear();
  live_links_.clear();
}

bool Peers::is_answer_awaited() const {
  return std::any_of(peers_.begin(), peers_.end(),
                     [](const Peer& peer) { return peer.owes_answers(); });
}

std::vector<File> Peers::give_up_link(uint32_t number, Connections& connections) {
  Link& link = peers_.at(number).link;
  forget_live_link(link);
  return link.give_up(connections);
}

void Peers::forget_live_link(const Link& link) {
  if (!link.is_live()) return;
  const auto live = live_links_.find(link.name());
  if (--live->second == 0) live_links_.erase(live);
}

void Peers::ring_again(uint64_t now_ns) {
  if (now_ns < ring_again_ns_) return;
  ring_again_ns_ = now_ns + PeerDoorbell::kPauseNs;
  for (Peer& peer : peers_)
    if (peer.owes_answers()) peer.doorbell.ring(now_ns);
}

}  // namespace braid::fabric::ofi
