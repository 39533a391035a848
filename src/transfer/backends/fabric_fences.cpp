// FabricBackend: fences, after which nothing that was posted on a way can land any more.
#include <algorithm>

#include "transfer/backends/fabric.h"

namespace braid::transfer {

void FabricBackend::fence(uint32_t id) {
  Way& way = ways_.at(id);
  if (way.fence != FenceState::kNone) return;
  ++fencing_;
  way.fence = FenceState::kWanted;
  way.fenced_generation = way.generation;
  way.fenced_peer = way.peer_number;
  way.token = ++tokens_;
  if (!way.is_up) return;
  rails_[way.rail]->close(way.link, true);
  forget_link({way.rail, way.link});
}

/// Its owner has closed its end, or has none, or is gone.
bool FabricBackend::is_fenced_there(const Way& way) const {
  return way.fence == FenceState::kAnswered || way.fenced_generation == 0 ||
         peers_.at(way.peer).is_lost;
}

void FabricBackend::look_after_fences() {
  for (auto& [id, way] : ways_) {
    if (way.fence == FenceState::kNone) continue;
    if (way.fence == FenceState::kAsked && now_ns_ >= way.asked_ns + kAskAgainNs)
      way.fence = FenceState::kWanted;
    const bool is_closing = way.link != 0 && !rails_[way.rail]->is_open(way.link);
    if (is_fenced_there(way) && !is_closing) {
      way.fence = FenceState::kNone;
      --fencing_;
      events_.push_back(WayFenced{id});
    } else if (way.fence == FenceState::kWanted) {
      ask_for_fence(id, way);
    }
  }
}

void FabricBackend::ask_for_fence(uint32_t id, Way& way) {
  const std::vector<LinkOfRail>& up = peers_.at(way.peer).up;
  if (up.empty()) {
    way.dial_until_ns = now_ns_ + kWantedNs;
    return want_dial(id, way, way.dial_again_ns);
  }
  way.asked_over = up[way.fence_turn++ % up.size()];
  way.asked_ns = now_ns_;
  way.fence = FenceState::kAsked;
  rails_[way.asked_over.rail]->send(
      way.asked_over.link,
      FenceRequest{way.token, rails_[way.rail]->number(), way.fenced_generation});
}

/// Keeps a peer's request for a fence. A peer that has heard nothing asks again over another link.
void FabricBackend::fence_asked(const FenceAsked& asked) {
  for (FenceAsked& before : fences_asked_)
    if (before.who == asked.who && before.request.token == asked.request.token) {
      before = asked;
      return;
    }
  fences_asked_.push_back(asked);
}

/// Takes the answer of an owner about its own ways. Answers of other peers are ignored.
void FabricBackend::fence_answered(const Incarnation& who, uint64_t token) {
  for (auto& [id, way] : ways_)
    if (way.token == token && way.peer == who && way.fence != FenceState::kNone) {
      way.fence = FenceState::kAnswered;
      rails_[way.rail]->fenced_by(way.fenced_peer);
    }
}

/// Answers peers that have asked for a fence, once no rail of this process has such a link any
/// more.
void FabricBackend::answer_fences() {
  std::erase_if(fences_asked_, [&](const FenceAsked& asked) {
    const bool is_fenced = std::all_of(rails_.begin(), rails_.end(), [&](const auto& rail) {
      return rail->fence_from(asked.request.engine, asked.request.generation, asked.who);
    });
    if (is_fenced) rails_[asked.over.rail]->send(asked.over.link, FenceAnswer{asked.request.token});
    return is_fenced;
  });
}

}  // namespace braid::transfer
