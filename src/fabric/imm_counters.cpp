#include "fabric/imm_counters.h"

#include <algorithm>
#include <string>

namespace braid::fabric {
namespace {

// A slot is used again only after many others, so that its epochs do not wrap around soon.
constexpr size_t kFreeMin = 64;

std::string name(uint32_t immediate) {
  return "immediate " + std::to_string(immediate) + " (slot " + std::to_string(slot_of(immediate)) +
         ", epoch " + std::to_string(epoch_of(immediate)) + ")";
}

}  // namespace

Result<uint32_t> ImmCounters::acquire() {
  const bool is_new = free_.size() < kFreeMin && next_slot_ < kSlots;
  if (!is_new && free_.empty()) return Status::error("all slots of immediates are in use");
  const uint32_t slot = is_new ? next_slot_++ : free_.front();
  if (!is_new) free_.pop_front();
  const auto last = last_epoch_.find(slot);
  const uint32_t immediate = make_immediate(slot, last == last_epoch_.end() ? 1 : last->second + 1);
  drop_unclaimed(immediate);
  if (Status taken = claim(immediate); !taken.ok()) return taken;
  return immediate;
}

Status ImmCounters::claim(uint32_t immediate) {
  if (has_ended(immediate)) return Status::error("the epoch of " + name(immediate) + " has ended");
  const auto [place, is_new] = counters_.try_emplace(immediate);
  if (place->second.is_claimed) return Status::error(name(immediate) + " has an owner");
  if (!is_new) unclaimed_.erase(place->second.place);
  place->second.is_claimed = true;
  return {};
}

Status ImmCounters::release(uint32_t immediate, uint64_t missing) {
  if (!is_claimed(immediate)) return Status::error(name(immediate) + " has no owner");
  counters_.erase(immediate);
  last_epoch_[slot_of(immediate)] = epoch_of(immediate);
  if (missing > 0)
    resting_[immediate] = missing;
  else
    give_back(slot_of(immediate));
  return {};
}

void ImmCounters::forgive(uint32_t immediate) {
  if (resting_.erase(immediate) > 0) give_back(slot_of(immediate));
}

void ImmCounters::give_back(uint32_t slot) {
  if (slot >= kFirstAcquired) free_.push_back(slot);
}

void ImmCounters::arrived(uint32_t immediate, uint32_t count) {
  const auto known = counters_.find(immediate);
  if (known != counters_.end()) {
    known->second.count += count;
  } else if (!has_ended(immediate)) {
    counters_[immediate] = {count, false, unclaimed_.insert(unclaimed_.end(), immediate)};
    if (unclaimed_.size() > unclaimed_max_) drop_unclaimed(unclaimed_.front());
  } else {
    strays_ += count;
    const auto resting = resting_.find(immediate);
    if (resting == resting_.end()) return;
    resting->second -= std::min<uint64_t>(resting->second, count);
    if (resting->second == 0) forgive(immediate);
  }
}

void ImmCounters::drop_unclaimed(uint32_t immediate) {
  const auto known = counters_.find(immediate);
  if (known == counters_.end() || known->second.is_claimed) return;
  strays_ += known->second.count;
  unclaimed_.erase(known->second.place);
  counters_.erase(known);
}

uint64_t ImmCounters::count(uint32_t immediate) const {
  const auto known = counters_.find(immediate);
  return known != counters_.end() && known->second.is_claimed ? known->second.count : 0;
}

bool ImmCounters::is_claimed(uint32_t immediate) const {
  const auto known = counters_.find(immediate);
  return known != counters_.end() && known->second.is_claimed;
}

// Epochs wrap around: the half of them before the last ended one counts as ended.
bool ImmCounters::has_ended(uint32_t immediate) const {
  const auto last = last_epoch_.find(slot_of(immediate));
  if (last == last_epoch_.end()) return false;
  const uint32_t ahead = epoch_of(immediate - last->second);
  return ahead == 0 || ahead >= (1u << (kEpochBits - 1));
}

}  // namespace braid::fabric
