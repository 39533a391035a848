// Approximations of the systems that SuperInfer compares itself with (section 5.2). They are
// written from the papers' descriptions, not from those systems' code, and are named `-like`.
#include <algorithm>

#include "serving/policies/kinds.h"
#include "serving/policies/room.h"

namespace braid::serving {
namespace {

uint32_t remaining(const RequestView& request) {
  return request.expected_tokens - std::min(request.expected_tokens, request.generated_tokens);
}

/// LightLLM's past-future scheduler: admits, in the order of arrival, what will still fit when the
/// running need most, by what past requests tell of lengths. It seldom preempts.
class LightllmLike final : public Policy {
 public:
  std::string_view name() const override { return "lightllm-like"; }
  Eviction eviction() const override { return Eviction::kRecompute; }
  Decision decide(const View& view) const override {
    Room room(view);
    if (room.is_short()) cover_growth(room, in_reverse(view, RequestState::kRunning, came_first));
    Queue batch = in_order(view, RequestState::kRunning, ends_later);
    for (const RequestView* request : in_order(view, RequestState::kWaiting, came_first)) {
      if (!room.fits(*request)) break;
      batch.insert(std::upper_bound(batch.begin(), batch.end(), request, ends_later), request);
      if (peak_tokens(batch) > uint64_t{view.total_blocks} * kBlockTokens) break;
      room.admit(*request);
    }
    return room.take();
  }

 private:
  static constexpr uint64_t kBlockTokens = 16;

  static bool ends_later(const RequestView* a, const RequestView* b) {
    return remaining(*a) != remaining(*b) ? remaining(*a) > remaining(*b) : came_first(a, b);
  }

  // When the i-th last request ends, those that end later have all grown as much as it has.
  static uint64_t peak_tokens(const Queue& batch) {
    uint64_t held = 0, peak = 0, count = 0;
    for (const RequestView* request : batch) {
      held += request->context_tokens;
      peak = std::max(peak, held + ++count * remaining(*request));
    }
    return peak;
  }
};

/// LTR: the requests that a ranking model expects to be shortest run, and preempt longer ones,
/// which are computed again.
class LtrLike final : public Policy {
 public:
  std::string_view name() const override { return "ltr-like"; }
  Eviction eviction() const override { return Eviction::kRecompute; }
  Decision decide(const View& view) const override {
    Room room(view);
    const Queue victims = in_reverse(view, RequestState::kRunning, is_shorter);
    cover_growth(room, victims);
    const Queue waiting = in_order(view, RequestState::kWaiting, is_shorter);
    admit_by_preempting(room, waiting, victims,
                        [&](const RequestView& candidate, const RequestView& victim) {
                          return victim.running_since_us < view.now_us &&
                                 candidate.length_rank < victim.length_rank;
                        });
    return room.take();
  }

 private:
  static bool is_shorter(const RequestView* a, const RequestView* b) {
    return a->length_rank != b->length_rank ? a->length_rank < b->length_rank : came_first(a, b);
  }
};

}  // namespace

std::unique_ptr<Policy> make_lightllm_like() { return std::make_unique<LightllmLike>(); }
std::unique_ptr<Policy> make_ltr_like() { return std::make_unique<LtrLike>(); }

}  // namespace braid::serving
