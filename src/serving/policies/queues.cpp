// Static orders of the queue: those of serving engines, and those that SuperInfer's motivation
// compares (section 3.1, appendix A).
#include <algorithm>

#include "serving/policies/kinds.h"
#include "serving/policies/room.h"

namespace braid::serving {
namespace {

Queue by_arrival(const View& view, RequestState state) { return in_order(view, state, kByArrival); }

Queue latest_running(const View& view) {
  return in_reverse(view, RequestState::kRunning, kByArrival);
}

/// vLLM's: in the order of arrival. If the running cannot grow, the latest arrival is computed
/// again.
class FcfsRecompute final : public Policy {
 public:
  std::string_view name() const override { return "fcfs_recompute"; }
  Eviction eviction() const override { return Eviction::kRecompute; }
  Decision decide(const View& view) const override {
    Room room(view);
    if (room.is_short()) return only_cover_growth(room, latest_running(view));
    admit_in_order(room, by_arrival(view, RequestState::kWaiting));
    return room.take();
  }
};

/// Swapped requests come back before any other is admitted. Preempts only for growth.
class SwappedFirst final : public Policy {
 public:
  std::string_view name() const override { return "swapped_first"; }
  Eviction eviction() const override { return Eviction::kRotate; }
  Decision decide(const View& view) const override {
    Room room(view);
    if (room.is_short()) return only_cover_growth(room, latest_running(view));
    if (admit_in_order(room, by_arrival(view, RequestState::kRotary)))
      admit_in_order(room, by_arrival(view, RequestState::kWaiting));
    return room.take();
  }
};

/// New requests first: they preempt the requests that have run longest, without a budget.
class WaitingFirst final : public Policy {
 public:
  std::string_view name() const override { return "waiting_first"; }
  Eviction eviction() const override { return Eviction::kRotate; }
  Decision decide(const View& view) const override {
    Room room(view);
    const Queue victims = in_order(view, RequestState::kRunning, running_since);
    cover_growth(room, victims);
    const Queue waiting = by_arrival(view, RequestState::kWaiting);
    admit_by_preempting(room, waiting, victims, [&](const RequestView&, const RequestView& victim) {
      return victim.running_since_us < view.now_us;
    });
    if (room.admitted() == waiting.size())
      admit_in_order(room, by_arrival(view, RequestState::kRotary));
    return room.take();
  }

 private:
  static int64_t running_since(const RequestView& request) { return request.running_since_us; }
};

/// Shortest job first, by the true number of tokens left. Preempts only for growth.
class SjfOracle final : public Policy {
 public:
  std::string_view name() const override { return "sjf_oracle"; }
  Eviction eviction() const override { return Eviction::kRecompute; }
  Decision decide(const View& view) const override {
    Room room(view);
    if (room.is_short())
      return only_cover_growth(room, in_reverse(view, RequestState::kRunning, remaining));
    admit_in_order(room, in_order(view, RequestState::kWaiting, remaining));
    return room.take();
  }

 private:
  static uint32_t remaining(const RequestView& request) {
    return request.output_tokens - std::min(request.output_tokens, request.generated_tokens);
  }
};

}  // namespace

std::unique_ptr<Policy> make_fcfs_recompute() { return std::make_unique<FcfsRecompute>(); }
std::unique_ptr<Policy> make_swapped_first() { return std::make_unique<SwappedFirst>(); }
std::unique_ptr<Policy> make_waiting_first() { return std::make_unique<WaitingFirst>(); }
std::unique_ptr<Policy> make_sjf_oracle() { return std::make_unique<SjfOracle>(); }

}  // namespace braid::serving
