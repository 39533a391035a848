#include "fabric/ofi/postings.h"

namespace braid::fabric::ofi {

using Stage = Posting::Stage;

Posting& Postings::begin(Event event, uint64_t context, uint32_t peer, Posting* before) {
  if (free_.empty()) free_.push_back(&all_.emplace_back());
  Posting& posting = *free_.back();
  free_.pop_back();
  posting.event = event;
  posting.context = context;
  posting.peer = peer;
  posting.stage = Stage::kUnderWay;
  posting.awaits_batch = posting.has_batch_failed = false;
  posting.before = before;
  if (event == Event::kPosted) peers_.begun(peer);
  return posting;
}

void Postings::settle(const Posting& posting, bool ok) {
  if (posting.event != Event::kPosted) return;
  Peer& peer = peers_.at(posting.peer);
  peer.is_broken = peer.is_broken || (!ok && keeps_broken_);
  peers_.ended(posting.peer);
}

void Postings::tell_end(const Posting& posting, bool ok) {
  settle(posting, ok);
  tell({posting.event, ok, 0, 0, posting.context});
}

void Postings::recycle(Posting& posting) {
  posting.stage = Stage::kFree;
  free_.push_back(&posting);
}

void Postings::withdraw(Posting& posting) {
  settle(posting, true);
  recycle(posting);
}

void Postings::refuse(Posting& posting) {
  settle(posting, true);
  tell({posting.event, false, 0, 0, posting.context});
  recycle(posting);
}

void Postings::end_batch(Posting* last, bool ok) {
  for (Posting *posting = last, *next = nullptr; posting != nullptr; posting = next) {
    next = posting->before;
    posting->awaits_batch = false;
    posting->has_batch_failed = !ok;
    posting->before = nullptr;
    const Stage stage = posting->stage;
    if (stage == Stage::kSent) tell_end(*posting, ok);
    if (stage == Stage::kSent || stage == Stage::kTold) recycle(*posting);
  }
}

std::optional<Completion> Postings::given_back(Posting& posting, bool ok, uint64_t size_bytes) {
  if (posting.stage == Stage::kAbandoned) return std::nullopt;
  if (posting.awaits_batch && ok) {
    posting.stage = Stage::kSent;
    return std::nullopt;
  }
  const bool is_well = ok && !posting.has_batch_failed;
  settle(posting, is_well);
  if (posting.awaits_batch) {
    posting.stage = Stage::kTold;
  } else {
    end_batch(posting.before, is_well);
    recycle(posting);
  }
  return Completion{posting.event, is_well, 0, ok ? size_bytes : 0, posting.context};
}

void Postings::abandon(uint32_t peer) {
  for (Posting& posting : all_) {
    if (posting.event != Event::kPosted || posting.peer != peer) continue;
    const Stage stage = posting.stage;
    if (stage == Stage::kUnderWay || stage == Stage::kSent) tell_end(posting, false);
    if (stage == Stage::kSent || stage == Stage::kTold) recycle(posting);
    if (stage != Stage::kUnderWay) continue;
    posting.stage = Stage::kAbandoned;
    abandoned_.push_back(&posting);
  }
}

void Postings::free_abandoned() {
  for (Posting* posting : abandoned_) recycle(*posting);
  abandoned_.clear();
}

size_t Postings::hand_out(std::span<Completion> completions) {
  size_t count = 0;
  for (; count < completions.size() && !waiting_.empty(); waiting_.pop_front())
    completions[count++] = waiting_.front();
  return count;
}

}  // namespace braid::fabric::ofi
