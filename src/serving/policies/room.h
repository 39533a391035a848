// A decision under construction, with the blocks that are left.
#pragma once

#include <algorithm>
#include <cstdint>
#include <tuple>
#include <vector>

#include "serving/request_state.h"

namespace braid::serving {

using Queue = std::vector<const RequestView*>;

class Room {
 public:
  /// Reserves the growth of all running requests: `left_blocks` may be negative.
  explicit Room(const View& view);

  int64_t left_blocks() const { return left_blocks_; }
  bool is_short() const { return left_blocks_ < 0; }
  bool fits(const RequestView& request) const {
    return slots_ > 0 && static_cast<int64_t>(request.blocks) <= left_blocks_;
  }
  /// Whether another may run beside those that do.
  bool has_seat() const { return slots_ > 0; }
  void admit(const RequestView& request);
  void preempt(const RequestView& victim);
  /// Undoes the latest preemptions, until `count` victims are left.
  void spare(size_t count);

  size_t preempted() const { return victims_.size(); }
  size_t admitted() const { return decision_.admit.size(); }
  uint64_t load_bytes() const { return decision_.load_bytes; }
  uint64_t save_bytes() const { return decision_.save_bytes; }
  uint64_t freed_blocks() const { return freed_blocks_; }
  Decision take();

 private:
  uint64_t block_bytes_;
  int64_t left_blocks_;
  int64_t slots_;
  uint64_t freed_blocks_ = 0;
  Queue victims_;
  Decision decision_;
};

/// The requests of a view in this state, in no order.
Queue in_state(const View& view, RequestState state);

/// The earlier arrival; the id decides between equal ones.
bool came_first(const RequestView* a, const RequestView* b);

/// Every request has the same rank.
inline constexpr auto kByArrival = [](const RequestView&) { return 0; };

/// Sorts by `rank_of(request)`, the lowest first; of equal ranks whoever came first. What is
/// compared is copied: requests lie far apart in memory.
template <typename RankOf>
void sort_by(Queue& queue, const RankOf& rank_of) {
  using Rank = decltype(rank_of(*queue.front()));
  std::vector<std::tuple<Rank, int64_t, RequestId, const RequestView*>> ranked;
  ranked.reserve(queue.size());
  for (const RequestView* request : queue)
    ranked.emplace_back(rank_of(*request), request->arrival_us, request->id, request);
  std::sort(ranked.begin(), ranked.end());
  for (size_t i = 0; i < queue.size(); ++i) queue[i] = std::get<3>(ranked[i]);
}

/// The requests of a view in this state, sorted.
template <typename RankOf>
Queue in_order(const View& view, RequestState state, const RankOf& rank_of) {
  Queue queue = in_state(view, state);
  sort_by(queue, rank_of);
  return queue;
}

template <typename RankOf>
Queue in_reverse(const View& view, RequestState state, const RankOf& rank_of) {
  Queue queue = in_order(view, state, rank_of);
  std::reverse(queue.begin(), queue.end());
  return queue;
}

/// Preempts from the front of `victims` until the growth of the running requests fits.
void cover_growth(Room& room, const Queue& victims);

/// The same, and admits nobody, as vLLM does in a step that preempts. By arrival, whoever is
/// preempted is ahead of those that wait; in other orders it need not be.
Decision only_cover_growth(Room& room, const Queue& victims);

/// Admits from the front, and stops at the first that does not fit. Returns true if all were
/// admitted.
bool admit_in_order(Room& room, const Queue& queue);

/// Admits from the front of `queue`. If a candidate does not fit, preempts from the front of
/// `victims` as many as it needs of those that `may_preempt(candidate, victim)` allows. Stops at
/// the first candidate for which these are too few, and preempts none for it.
template <typename MayPreempt>
void admit_by_preempting(Room& room, const Queue& queue, const Queue& victims,
                         const MayPreempt& may_preempt) {
  size_t next = room.preempted();
  for (const RequestView* candidate : queue) {
    const size_t before = room.preempted();
    const size_t first = next;
    while (!room.fits(*candidate) && next < victims.size() &&
           may_preempt(*candidate, *victims[next]))
      room.preempt(*victims[next++]);
    if (!room.fits(*candidate)) {
      room.spare(before);
      next = first;
      return;
    }
    room.admit(*candidate);
  }
}

}  // namespace braid::serving
