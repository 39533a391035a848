// Policies that use the objectives of each request, but no lag.
#include <algorithm>

#include "serving/policies/kinds.h"
#include "serving/policies/room.h"

namespace braid::serving {
namespace {

int64_t deadline_us(const RequestView& request) {
  return request.last_token_us == kNoToken ? request.arrival_us + request.slo.ttft_us
                                           : request.last_token_us + request.slo.tbt_us;
}

Queue paused(const View& view) {
  Queue queue = in_state(view, RequestState::kWaiting);
  const Queue rotary = in_state(view, RequestState::kRotary);
  queue.insert(queue.end(), rotary.begin(), rotary.end());
  return queue;
}

/// Those with the lowest ranks run. One that is paused preempts the last of those that run, if it
/// may.
template <typename RankOf, typename MayPreempt>
Decision decide_in_order(const View& view, const RankOf& rank_of, const MayPreempt& may_preempt) {
  Room room(view);
  const Queue victims = in_reverse(view, RequestState::kRunning, rank_of);
  cover_growth(room, victims);
  Queue queue = paused(view);
  sort_by(queue, rank_of);
  admit_by_preempting(room, queue, victims, may_preempt);
  return room.take();
}

/// Earliest deadline first, of the next token: preempts the requests with later deadlines.
class Edf final : public Policy {
 public:
  std::string_view name() const override { return "edf"; }
  Eviction eviction() const override { return Eviction::kRotate; }
  Decision decide(const View& view) const override {
    return decide_in_order(view, deadline_us,
                           [&](const RequestView& candidate, const RequestView& victim) {
                             return victim.running_since_us < view.now_us &&
                                    deadline_us(candidate) < deadline_us(victim);
                           });
  }
};

/// Classes in the order of their priority, first come first served within each. A class preempts
/// lower ones.
class SloClasses final : public Policy {
 public:
  std::string_view name() const override { return "slo_classes"; }
  Eviction eviction() const override { return Eviction::kRotate; }
  Decision decide(const View& view) const override {
    return decide_in_order(
        view, [](const RequestView& request) { return request.priority; },
        [](const RequestView& candidate, const RequestView& victim) {
          return candidate.priority < victim.priority;
        });
  }
};

}  // namespace

std::unique_ptr<Policy> make_edf() { return std::make_unique<Edf>(); }
std::unique_ptr<Policy> make_slo_classes() { return std::make_unique<SloClasses>(); }

}  // namespace braid::serving
