// Decides which flow posts the next slice. Urgent slices go before bulk, which keeps at least a
// twentieth; within each urgency peers take turns, and within a peer its flows. Small state
// machines, driven by the scheduler.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <set>
#include <unordered_map>
#include <utility>

#include "transfer/policy/spray.h"

namespace braid::transfer {

/// Gives turns by bytes: the next turn goes to the member that has posted least among those that
/// can post. A member that lacked room keeps its claim, which it would lose in a ring. Claims are
/// limited, so that a member that waited long does not keep all others off afterwards. Source:
/// start-time fair queueing, Goyal, Vin and Cheng, SIGCOMM 1996.
class FairOrder {
 public:
  static constexpr uint64_t kClaimBytesMax = 4 << 20;
  static constexpr uint64_t kNorOthers = std::numeric_limits<uint64_t>::max();

  bool is_empty() const { return order_.empty(); }
  size_t size() const { return order_.size(); }
  void add(uint64_t id) { insert(id, now_); }
  /// False: it was not there.
  bool remove(uint64_t id) {
    const auto at = places_.find(id);
    if (at == places_.end()) return false;
    order_.erase(at->second);
    places_.erase(at);
    return true;
  }
  /// Asks members in turn until one posts, and returns the bytes. `post(id)` returns how many bytes
  /// the member has posted, 0 if it cannot post now, kNorOthers if no member behind it can either.
  /// No member may be added or removed meanwhile. A member keeps its turn for `turn_bytes`: if
  /// equal batches alternated slice by slice, all of them would end late.
  template <typename Post>
  uint64_t take(uint64_t turn_bytes, const Post& post) {
    if (held_bytes_ < turn_bytes && places_.count(holder_) > 0) {
      const uint64_t bytes = post(holder_);
      if (bytes == kNorOthers) return 0;
      if (bytes > 0) return pay(holder_, bytes);
    }
    for (const Place& place : order_) {
      const uint64_t bytes = post(place.id);
      if (bytes == kNorOthers) return 0;
      if (bytes == 0) continue;
      holder_ = place.id;
      held_bytes_ = 0;
      return pay(holder_, bytes);
    }
    return 0;
  }

 private:
  struct Place {
    uint64_t bytes;
    uint64_t since;  // among equals the one that has waited longer goes first
    uint64_t id;
    bool operator<(const Place& other) const {
      return bytes != other.bytes ? bytes < other.bytes : since < other.since;
    }
  };

  void insert(uint64_t id, uint64_t bytes) {
    const Place place{bytes, places_count_++, id};
    order_.insert(place);
    places_.insert_or_assign(id, place);
  }
  uint64_t pay(uint64_t id, uint64_t bytes) {
    const Place before = places_.at(id);
    held_bytes_ += bytes;
    now_ = std::max(now_, before.bytes);
    const uint64_t least = now_ - std::min(now_, kClaimBytesMax);
    order_.erase(before);
    insert(id, std::max(before.bytes, least) + bytes);
    return bytes;
  }

  std::set<Place> order_;
  std::unordered_map<uint64_t, Place> places_;
  uint64_t places_count_ = 0;
  uint64_t now_ = 0;  // the bytes that the latest poster had posted before
  uint64_t holder_ = std::numeric_limits<uint64_t>::max();  // the member that has the turn
  uint64_t held_bytes_ = 0;                                 // posted in this turn
};

/// Turns of flows that have slices to post, in three levels: peers, the way sets to each peer, and
/// the flows of each way set. Flows of different way sets do not wait for the same rails, so their
/// bytes say nothing about each other's turn.
class Turns {
 public:
  struct Flow {
    uint64_t peer = 0;
    uint64_t ways = 0;
    uint64_t number = 0;
  };

  bool is_empty() const { return count_ == 0; }
  size_t size() const { return count_; }
  void add(const Flow& flow) {
    Peer& peer = of_peer_[flow.peer];
    FairOrder& flows = peer.of_ways[flow.ways];
    if (peer.ways.is_empty()) peers_.add(flow.peer);
    if (flows.is_empty()) peer.ways.add(flow.ways);
    flows.add(flow.number);
    ++count_;
  }
  void remove(const Flow& flow) {
    Peer& peer = of_peer_[flow.peer];
    FairOrder& flows = peer.of_ways[flow.ways];
    count_ -= flows.remove(flow.number) ? 1 : 0;
    if (!flows.is_empty()) return;
    peer.ways.remove(flow.ways);
    peer.of_ways.erase(flow.ways);
    if (!peer.ways.is_empty()) return;
    peers_.remove(flow.peer);
    of_peer_.erase(flow.peer);
  }
  /// As FairOrder::take, for flows. kNorOthers then means the other flows of the same way set.
  template <typename Post>
  uint64_t take(uint64_t turn_bytes, const Post& post) {
    return peers_.take(0, [&](uint64_t id) {
      Peer& peer = of_peer_[id];
      return peer.ways.take(
          0, [&](uint64_t ways) { return peer.of_ways[ways].take(turn_bytes, post); });
    });
  }

 private:
  struct Peer {
    FairOrder ways;
    std::unordered_map<uint64_t, FairOrder> of_ways;  // none is empty
  };
  FairOrder peers_;
  std::unordered_map<uint64_t, Peer> of_peer_;  // none is empty
  size_t count_ = 0;
};

class UrgencyShare {
 public:
  static constexpr uint64_t kUrgentForBulk = 19;  ///< bytes: bulk keeps 1 of 20
  /// Bulk makes way while urgent requests exist, and for this long after each of them began.
  static constexpr uint64_t kMemoryNs = 100'000'000;

  Urgency first(bool has_urgent, bool has_bulk) const {
    if (!has_urgent) return Urgency::kBulk;
    return has_bulk && urgent_bytes_ >= kUrgentForBulk * kOwedBytes ? Urgency::kBulk
                                                                    : Urgency::kUrgent;
  }
  void posted(Urgency urgency, uint64_t size_bytes, bool is_other_waiting) {
    if (urgency == Urgency::kUrgent)
      urgent_bytes_ = is_other_waiting ? urgent_bytes_ + size_bytes : 0;
    else
      urgent_bytes_ -= std::min(urgent_bytes_, kUrgentForBulk * size_bytes);
  }
  void urgent_added(uint64_t now_ns) {
    ++urgent_requests_;
    until_ns_ = now_ns + kMemoryNs;
  }
  void urgent_ended() { --urgent_requests_; }
  bool is_urgent_about(uint64_t now_ns) const { return urgent_requests_ > 0 || now_ns < until_ns_; }

 private:
  static constexpr uint64_t kOwedBytes = 64 << 10;
  uint64_t urgent_bytes_ = 0;     // that passed bulk, and for which bulk has not been paid
  uint64_t urgent_requests_ = 0;  // urgent requests that have not ended
  uint64_t until_ns_ = 0;
};

}  // namespace braid::transfer
