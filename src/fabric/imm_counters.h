// How many immediates of each number have arrived. Only a count says that bytes have arrived, since
// writes have no order. An immediate counts from its first arrival, even before it is claimed.
//
// An immediate is a slot (20 bits) and an epoch (12 bits). Releasing an immediate ends its epoch: a
// later arrival under it is a stray, and disturbs no later use of the slot. If arrivals are still
// missing at the release, the slot rests until they have come or are forgiven.
//
// Slots below kFirstAcquired are for numbers that both sides know beforehand (`claim`); `acquire`
// hands out the others. Not safe for concurrent use.
// Source: 3.3 of the paper, ImmCounter.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <list>
#include <unordered_map>

#include "base/status.h"

namespace braid::fabric {

inline constexpr uint32_t kEpochBits = 12;
inline constexpr uint32_t kSlots = 1u << (32 - kEpochBits);
inline constexpr uint32_t kFirstAcquired = kSlots / 2;

constexpr uint32_t slot_of(uint32_t immediate) { return immediate >> kEpochBits; }
constexpr uint32_t epoch_of(uint32_t immediate) { return immediate & ((1u << kEpochBits) - 1); }
constexpr uint32_t make_immediate(uint32_t slot, uint32_t epoch) {
  return slot << kEpochBits | (epoch & ((1u << kEpochBits) - 1));
}

class ImmCounters {
 public:
  /// `unclaimed_max`: the most unclaimed immediates that are remembered. Beyond that the oldest
  /// becomes a stray.
  explicit ImmCounters(size_t unclaimed_max = 1 << 16) : unclaimed_max_(unclaimed_max) {}

  /// An immediate that nobody else has, in a new epoch of its slot. Its count is 0: earlier
  /// arrivals under it were guesses, and are dropped as strays.
  Result<uint32_t> acquire();
  /// Claims a number that the caller chooses. An error if it has an owner, or its epoch has ended.
  Status claim(uint32_t immediate);
  /// Ends its epoch. `missing` more may come as strays; its slot rests until then.
  Status release(uint32_t immediate, uint64_t missing = 0);
  /// The missing arrivals of this released immediate will never come: its writer is fenced.
  void forgive(uint32_t immediate);

  void arrived(uint32_t immediate, uint32_t count = 1);
  /// 0 for an immediate that is not claimed.
  uint64_t count(uint32_t immediate) const;
  bool is_claimed(uint32_t immediate) const;

  uint64_t strays() const { return strays_; }

 private:
  struct Counter {
    uint64_t count = 0;
    bool is_claimed = false;
    std::list<uint32_t>::iterator place{};  // in unclaimed_, until it is claimed
  };

  bool has_ended(uint32_t immediate) const;
  void drop_unclaimed(uint32_t immediate);
  void give_back(uint32_t slot);

  std::unordered_map<uint32_t, Counter> counters_;     // by immediate
  std::unordered_map<uint32_t, uint32_t> last_epoch_;  // by slot: the last that has ended
  std::unordered_map<uint32_t, uint64_t> resting_;     // by immediate: how many are missing
  std::deque<uint32_t> free_;  // slots that were acquired and are free again; oldest first
  uint32_t next_slot_ = kFirstAcquired;
  std::list<uint32_t> unclaimed_;  // arrived, but not claimed; oldest first
  size_t unclaimed_max_;
  uint64_t strays_ = 0;
};

}  // namespace braid::fabric
