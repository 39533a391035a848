// RotaSched: SuperInfer section 4.2, as two presets.
#include "serving/policies/kinds.h"

#include <algorithm>

#include "serving/policies/largest_lag_first.h"
#include "serving/policies/room.h"

namespace braid::serving {
namespace {

/// Algorithm 1 to the letter, with two additions where it leaves the choice to the engine.
/// Prioritized requests are admitted as far as the free blocks reach. If the running cannot grow,
/// the latest arrival is preempted, as in vLLM.
class Paper final : public Policy {
 public:
  explicit Paper(const PolicyParameters& parameters) : parameters_(parameters) {}
  std::string_view name() const override { return "paper"; }
  Eviction eviction() const override { return Eviction::kRotate; }

  Decision decide(const View& view) const override {
    const LargestLagFirst chosen =
        largest_lag_first(view, view.free_blocks, parameters_.transfer_blocks, parameters_.lag);
    Room room(view);
    for (const RequestView* victim : chosen.preempted) room.preempt(*victim);
    if (room.is_short()) preempt_passively(view, chosen, room);
    for (const RequestView* request : chosen.prioritized)
      if (request->state != RequestState::kRunning && room.fits(*request)) room.admit(*request);
    return room.take();
  }

 private:
  static void preempt_passively(const View& view, const LargestLagFirst& chosen, Room& room) {
    Queue victims;
    for (const RequestView* request : in_state(view, RequestState::kRunning))
      if (std::find(chosen.preempted.begin(), chosen.preempted.end(), request) ==
          chosen.preempted.end())
        victims.push_back(request);
    sort_by(victims, kByArrival);
    std::reverse(victims.begin(), victims.end());
    cover_growth(room, victims);
  }

  PolicyParameters parameters_;
};

/// Rules that Algorithm 1 needs beyond the paper to run on an ordinary server:
/// - Growth of the running requests is reserved first, and these are not prioritized again.
/// - No request is preempted for one that is not admitted in the end. The blocks preempted for one
///   exceed its need by less than the last victim.
/// - No request overtakes one that finds no room, so that large ones do not starve.
/// - A request is not preempted if it would then lag more than the one that it makes room for, as
///   one whose prompt is not computed yet: it would come back in the next step.
/// - A request is not preempted if the host has no room for its KV cache.
/// - No request is preempted while `max_running` requests run: a seat alone is not worth it.
/// - Budgets are bytes by direction. A request that exceeds a whole budget may go when no other
///   request loads, and none behind it begins to load before that; otherwise it would never go.
/// - `late_only`: requests that are in time take only free blocks.
class Braid final : public Policy {
 public:
  explicit Braid(const PolicyParameters& parameters) : parameters_(parameters) {}
  std::string_view name() const override { return "braid"; }
  Eviction eviction() const override { return Eviction::kRotate; }

  Decision decide(const View& view) const override {
    Room room(view);
    std::vector<Ranked> candidates, running;
    for (const Ranked& entry : lags(view, parameters_.lag))
      (entry.request->state == RequestState::kRunning ? running : candidates).push_back(entry);
    std::sort(running.rbegin(), running.rend());  // the request furthest ahead goes first
    Queue victims;
    for (const Ranked& entry : running) victims.push_back(entry.request);
    cover_growth(room, victims);
    if (admit_all(view, candidates, room)) return room.take();
    const bool loading = candidates.size() + running.size() < view.requests.size();
    Books books{view, !loading, room.preempted()};
    // A heap: only few of the waiting requests are needed.
    const auto comes_later = [](const Ranked& a, const Ranked& b) { return b < a; };
    std::make_heap(candidates.begin(), candidates.end(), comes_later);
    for (auto end = candidates.end(); end != candidates.begin(); --end) {
      std::pop_heap(candidates.begin(), end, comes_later);
      const Ranked& candidate = end[-1];
      const RequestView& request = *candidate.request;
      if (!books.can_load(room, request)) continue;
      if (!make_room(view, room, books, victims, candidate)) break;
      room.admit(request);
      books.exempt = false;
    }
    return room.take();
  }

 private:
  struct Books {
    const View& view;
    bool exempt;                  ///< the first one admitted may exceed a budget
    size_t next_victim;           ///< in the order of victims
    bool links_are_kept = false;  ///< for one that exceeds a budget: it goes once no other loads

    bool can_load(const Room& room, const RequestView& request) {
      const uint64_t bytes = request.load_blocks * view.block_bytes;
      if (bytes == 0) return true;
      if (links_are_kept) return false;
      if (exempt || room.load_bytes() + bytes <= view.budget.load_bytes) return true;
      links_are_kept = bytes > view.budget.load_bytes;
      return false;
    }
    // A preempted request comes back later: its blocks count against loading too.
    bool can_preempt(const Room& room, const RequestView& victim) const {
      const uint64_t freed = (room.freed_blocks() + victim.freed_blocks) * view.block_bytes;
      const uint64_t saved = room.save_bytes() + victim.save_blocks * view.block_bytes;
      if (saved > view.host_free_blocks * view.block_bytes) return false;
      return exempt || (freed <= view.budget.load_bytes && saved <= view.budget.save_bytes);
    }
  };

  // Step 1 of Algorithm 1, within the budget.
  static bool admit_all(const View& view, const std::vector<Ranked>& candidates, Room& room) {
    Queue paused;
    int64_t wanted_blocks = 0;
    uint64_t load_bytes = 0;
    for (const Ranked& entry : candidates) {
      paused.push_back(entry.request);
      wanted_blocks += entry.request->blocks;
      load_bytes += entry.request->load_blocks * view.block_bytes;
    }
    if (wanted_blocks > room.left_blocks() || load_bytes > view.budget.load_bytes) return false;
    sort_by(paused, kByArrival);
    admit_in_order(room, paused);
    return true;
  }

  bool is_late(const View& view, const Ranked& candidate) const {
    if (!parameters_.late_only || candidate.lag_us > 0) return true;
    const RequestView& request = *candidate.request;
    const int64_t due_us = request.last_token_us == kNoToken
                               ? request.arrival_us + request.slo.ttft_us
                               : request.last_token_us + request.slo.tbt_us;
    return view.now_us + view.step_us > due_us;
  }

  double lag_if_paused_us(RequestView victim, int64_t now_us) const {
    victim.state = RequestState::kRotary;
    return virtual_lag_us(victim, now_us, parameters_.lag);
  }

  bool make_room(const View& view, Room& room, Books& books, const Queue& victims,
                 const Ranked& candidate) const {
    if (room.fits(*candidate.request)) return true;
    if (!room.has_seat() || !is_late(view, candidate)) return false;
    const size_t before = room.preempted();
    size_t next = books.next_victim;
    for (; !room.fits(*candidate.request) && next < victims.size(); ++next) {
      const RequestView& victim = *victims[next];
      if (victim.running_since_us == view.now_us || !books.can_preempt(room, victim)) break;
      if (lag_if_paused_us(victim, view.now_us) <= candidate.lag_us) room.preempt(victim);
    }
    if (!room.fits(*candidate.request)) {
      room.spare(before);
      return false;
    }
    books.next_victim = next;
    return true;
  }

  PolicyParameters parameters_;
};

}  // namespace

std::unique_ptr<Policy> make_paper(const PolicyParameters& parameters) {
  return std::make_unique<Paper>(parameters);
}
std::unique_ptr<Policy> make_braid(const PolicyParameters& parameters) {
  return std::make_unique<Braid>(parameters);
}

}  // namespace braid::serving
