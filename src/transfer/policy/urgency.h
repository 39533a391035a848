// Whose slice is next: urgent ones before bulk, which keeps at least a twentieth; within a kind,
// flows take turns by bytes. Small state machines; whoever has slices drives them.
// Source: deficit round robin is Shreedhar and Varghese, SIGCOMM 1995; here a turn may overdraw,
// and is paid for in later rounds, so that slices of any size pass.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "transfer/policy/spray.h"

namespace braid::transfer {

/// Turns of flows that have slices to post. Flows are numbers of the caller's.
class Turns {
 public:
  static constexpr int64_t kQuantumBytes = 256 << 10;

  bool is_empty() const { return ring_.empty(); }
  size_t size() const { return ring_.size(); }
  void add(uint32_t flow) { ring_.push_back({flow, kQuantumBytes}); }
  void remove(uint32_t flow) {
    const auto at = std::find_if(ring_.begin(), ring_.end(),
                                 [&](const Turn& turn) { return turn.flow == flow; });
    if (at == ring_.end()) return;
    const size_t index = static_cast<size_t>(at - ring_.begin());
    ring_.erase(at);
    if (index < at_) --at_;
    if (at_ >= ring_.size()) at_ = 0;
  }

  /// Asks flows in turn until one of them posts: `post(flow)` returns how many bytes it has posted,
  /// 0 if it cannot now. False: none can. `post` adds and removes no flows.
  template <typename Post>
  bool take(const Post& post) {
    size_t blocked = 0;
    while (blocked < ring_.size()) {
      Turn& turn = ring_[at_];
      if (turn.deficit <= 0) {  // it has overdrawn
        turn.deficit += kQuantumBytes;
        advance();
        continue;
      }
      const uint64_t bytes = post(turn.flow);
      if (bytes > 0) {
        turn.deficit -= static_cast<int64_t>(bytes);
        return true;
      }
      ++blocked;
      advance();
    }
    return false;
  }

 private:
  struct Turn {
    uint32_t flow;
    int64_t deficit;
  };
  void advance() { at_ = at_ + 1 < ring_.size() ? at_ + 1 : 0; }

  std::vector<Turn> ring_;
  size_t at_ = 0;
};

class UrgencyShare {
 public:
  static constexpr uint64_t kUrgentForBulk = 19;  ///< bytes: bulk keeps 1 of 20
  /// So long after an urgent slice, bulk keeps out of the way of the next.
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
    has_been_urgent_ = true;
    urgent_ns_ = now_ns;
  }
  bool is_urgent_about(uint64_t now_ns) const {
    return has_been_urgent_ && now_ns - urgent_ns_ < kMemoryNs;
  }

 private:
  static constexpr uint64_t kOwedBytes = 64 << 10;
  uint64_t urgent_bytes_ = 0;  // that bulk has let pass and has not been paid for
  uint64_t urgent_ns_ = 0;
  bool has_been_urgent_ = false;
};

}  // namespace braid::transfer
