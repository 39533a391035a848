// Approximations of the systems that SuperInfer compares itself with (section 5.2). They follow the
// papers' descriptions, not the systems' code, and are named `-like`.
#include <algorithm>

#include "serving/policies/kinds.h"
#include "serving/policies/room.h"

namespace braid::serving {
namespace {

uint32_t remaining(const RequestView& request) {
  return request.expected_tokens - std::min(request.expected_tokens, request.generated_tokens);
}

/// LightLLM's past-future scheduler: in the order of arrival, admits the requests that still fit
/// when the running ones need most blocks, with lengths estimated from past requests. It seldom
/// preempts.
class LightllmLike final : public Policy {
 public:
  std::string_view name() const override { return "lightllm-like"; }
  Eviction eviction() const override { return Eviction::kRecompute; }
  Decision decide(const View& view) const override {
    Room room(view);
    if (room.is_short())
      return only_cover_growth(room, in_reverse(view, RequestState::kRunning, kByArrival));
    Queue batch = in_order(view, RequestState::kRunning,
                           [](const RequestView& request) { return -int64_t{remaining(request)}; });
    for (const RequestView* request : in_order(view, RequestState::kWaiting, kByArrival)) {
      if (!room.fits(*request)) break;
      batch.insert(std::upper_bound(batch.begin(), batch.end(), request, ends_later), request);
      if (peak_tokens(batch) > uint64_t{view.total_blocks} * view.block_tokens) break;
      room.admit(*request);
    }
    return room.take();
  }

 private:
  static bool ends_later(const RequestView* a, const RequestView* b) {
    return remaining(*a) != remaining(*b) ? remaining(*a) > remaining(*b) : came_first(a, b);
  }

  // When the i-th last request ends, all that end later have grown by as much.
  static uint64_t peak_tokens(const Queue& batch) {
    uint64_t held = 0, peak = 0, count = 0;
    for (const RequestView* request : batch) {
      held += request->context_tokens;
      peak = std::max(peak, held + ++count * remaining(*request));
    }
    return peak;
  }
};

/// LTR: the requests with the shortest expected lengths (by a ranking model) run. They preempt
/// longer ones, which are computed again.
class LtrLike final : public Policy {
 public:
  std::string_view name() const override { return "ltr-like"; }
  Eviction eviction() const override { return Eviction::kRecompute; }
  Decision decide(const View& view) const override {
    Room room(view);
    const Queue victims = in_reverse(view, RequestState::kRunning, length_rank);
    cover_growth(room, victims);
    const Queue waiting = in_order(view, RequestState::kWaiting, length_rank);
    admit_by_preempting(room, waiting, victims,
                        [&](const RequestView& candidate, const RequestView& victim) {
                          return victim.running_since_us < view.now_us &&
                                 candidate.length_rank < victim.length_rank;
                        });
    return room.take();
  }

 private:
  static double length_rank(const RequestView& request) { return request.length_rank; }
};

/// NEO: some requests have their KV cache on the host. The CPU computes their attention, the GPU
/// all else. New requests go first; the latest arrivals make room for them, as long as the CPU's
/// attention ends no later than the GPU's step. Requests come back in the order of arrival when
/// none is waiting.
///
/// Approximated: one batch for both instead of two that overlap; attention overlaps the whole step,
/// not layer by layer; whole requests move; one assumed rate (kCpuAttentionGbps) limits the CPU's
/// reads, which do not slow copies.
class NeoLike final : public Policy {
 public:
  std::string_view name() const override { return "neo-like"; }
  Eviction eviction() const override { return Eviction::kOffload; }
  Decision decide(const View& view) const override {
    Room room(view);
    const Queue victims = in_reverse(view, RequestState::kRunning, kByArrival);
    cover_growth(room, victims);
    const Queue offloaded = in_order(view, RequestState::kRotary, kByArrival);
    uint64_t held_blocks = 0;
    for (const RequestView* request : offloaded) held_blocks += request->blocks;
    const double most_bytes = kCpuAttentionGbps * 1e3 * static_cast<double>(view.step_us);
    const Queue waiting = in_order(view, RequestState::kWaiting, kByArrival);
    admit_by_preempting(room, waiting, victims, [&](const RequestView&, const RequestView& victim) {
      const uint64_t held = held_blocks + room.freed_blocks() + victim.freed_blocks;
      const uint64_t saved = room.save_bytes() + victim.save_blocks * view.block_bytes;
      return victim.running_since_us < view.now_us && victim.generated_tokens > 0 &&
             static_cast<double>(held * view.block_bytes) <= most_bytes &&
             saved <= view.host_free_blocks * view.block_bytes;
    });
    if (room.admitted() == waiting.size()) admit_in_order(room, offloaded);
    return room.take();
  }
};

}  // namespace

std::unique_ptr<Policy> make_lightllm_like() { return std::make_unique<LightllmLike>(); }
std::unique_ptr<Policy> make_ltr_like() { return std::make_unique<LtrLike>(); }
std::unique_ptr<Policy> make_neo_like() { return std::make_unique<NeoLike>(); }

}  // namespace braid::serving
