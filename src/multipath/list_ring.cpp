#include "multipath/list_ring.h"

namespace braid::multipath {

void ListRing::reclaim() {
  while (reservation_count_ != 0) {
    const Reservation& oldest = reservations_[first_reservation_];
    if (oldest.is_lost() && lost_count_ < lost_.size())
      lost_[lost_count_++] = oldest.lists;
    else if (!oldest.is_over())
      break;
    begin_ = oldest.lists.end;
    first_reservation_ = (first_reservation_ + 1) % reservations_.size();
    --reservation_count_;
  }
  if (reservation_count_ == 0) begin_ = end_ = 0;
}

// The first place in `room` that has nothing of what is lost in it.
std::optional<size_t> ListRing::fit(Range room, size_t count) const {
  for (size_t seen = 0; seen < lost_count_; ++seen)
    for (size_t i = 0; i < lost_count_; ++i)
      if (lost_[i].begin < room.begin + count && room.begin < lost_[i].end)
        room.begin = lost_[i].end;
  if (room.begin + count > room.end) return std::nullopt;
  return room.begin;
}

std::span<cuda::SliceList> ListRing::reserve(size_t count) {
  reclaim();
  if (reservation_count_ == reservations_.size()) return {};
  const bool wraps = reservation_count_ != 0 && end_ <= begin_;  // the free part lies in the middle
  auto at = fit({end_, wraps ? begin_ : kLists}, count);
  if (!at && !wraps) at = fit({0, begin_}, count);
  if (!at) return {};
  reserved_at_ = *at;
  return {lists() + reserved_at_, count};
}

void ListRing::commit(size_t count, const TransferState& state) {
  end_ = reserved_at_ + count;
  reservations_[(first_reservation_ + reservation_count_) % reservations_.size()] = {
      {reserved_at_, end_}, &state, state.generation};
  ++reservation_count_;
}

}  // namespace braid::multipath
