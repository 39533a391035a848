#include "decoder.h"

#include <poll.h>

#include <algorithm>
#include <cstdio>

namespace kv_push {
namespace {

using std::chrono::seconds;

// A prefiller that is this late is taken for unresponsive: its request is cancelled, and dispatched
// again.
constexpr seconds kPushLimit{30};
constexpr seconds kConfirmLimit{5};
constexpr seconds kFenceLimit{5};

const char* text_of(braid_fabric_loss why) {
  switch (why) {
    case BRAID_FABRIC_LEFT: return "has left";
    case BRAID_FABRIC_ENDED: return "has died";
    case BRAID_FABRIC_SILENT: return "is silent";
    default: return "is lost";
  }
}

}  // namespace

Decoder::Decoder(Fabric& fabric, Device& device, seconds patience)
    : fabric_(fabric),
      pool_(fabric, device),
      events_(must(fabric.event_descriptor())),
      patience_(patience) {
  must(fabric_.on_peers());
  must(fabric_.on_messages());
}

void Decoder::wait_for_prefillers(size_t count) {
  const auto end = Clock::now() + seconds(60);
  while (prefillers_.size() != count) {
    if (Clock::now() > end) die("the prefillers that were to join or leave have not");
    step();
  }
}

Decoder::Tally Decoder::decode(std::vector<Request> requests, const AtMiddle& at_middle) {
  tally_ = {};
  at_middle_ = at_middle;
  waiting_.assign(requests.begin(), requests.end());
  moved_ = Clock::now();
  while (!waiting_.empty() || !dispatches_.empty()) {
    dispatch_waiting();
    step();
    watch_patience();
  }
  return tally_;
}

void Decoder::finish() {
  const auto end = Clock::now() + kFenceLimit;
  while (!resting_.empty() && Clock::now() < end) step();
  pool_.verify_free();
  for (const auto& [peer, prefiller] : prefillers_) must(fabric_.disconnect(peer));
}

void Decoder::step() {
  pollfd readable{events_, POLLIN, 0};
  (void)poll(&readable, 1, 10);
  for (const Fabric::Event& event : must(fabric_.take_events())) handle(event);
  let_leave();
  watch_deadlines();
  look_at_resting();
}

void Decoder::handle(const Fabric::Event& event) {
  if (event.kind == BRAID_FABRIC_EVENT_COUNT && event.is_cancelled == 0) {
    const auto found = dispatches_.find(static_cast<Fabric::Immediate>(event.id));
    if (found != dispatches_.end()) counted(found, event.value);
  } else if (event.kind == BRAID_FABRIC_EVENT_MESSAGE) {
    while (const auto message = must(fabric_.receive(braid::Limit(0))))
      handle(message->from, message->bytes);
  } else if (event.kind == BRAID_FABRIC_EVENT_PEER) {
    // Who has connected is of interest once it has joined.
    while (must(fabric_.accept(braid::Limit(0)))) continue;
    while (const auto lost = must(fabric_.wait_lost(braid::Limit(0)))) peer_lost(*lost);
  }
}

void Decoder::handle(Fabric::Peer from, const Bytes& bytes) {
  const std::optional<Message> message = to_message(bytes);
  if (!message) return;
  if (const auto* join = std::get_if<Join>(&*message)) {
    prefillers_[from] = {join->name};
    std::printf("%s joins\n", join->name.c_str());
  } else if (const auto* cancelled = std::get_if<CancelConfirmed>(&*message)) {
    confirmed(cancelled->number);
  } else if (std::holds_alternative<Leave>(*message) && prefillers_.count(from) > 0) {
    prefillers_[from].is_leaving = true;
  }
}

// ---- Prefillers that go ----

void Decoder::let_leave() {
  for (auto each = prefillers_.begin(); each != prefillers_.end();) {
    const auto& [peer, prefiller] = *each;
    const bool may_go = prefiller.is_leaving && prefiller.dispatched == 0;
    if (may_go) {
      std::printf("%s leaves\n", prefiller.name.c_str());
      must(fabric_.disconnect(peer));
    }
    each = may_go ? prefillers_.erase(each) : std::next(each);
  }
}

void Decoder::peer_lost(const Fabric::Lost& lost) {
  if (const auto found = prefillers_.find(lost.peer); found != prefillers_.end()) {
    std::printf("%s %s\n", found->second.name.c_str(), text_of(lost.why));
    for (auto each = dispatches_.begin(); each != dispatches_.end();) {
      const auto dispatched = each++;
      if (dispatched->second.prefiller == lost.peer) end(dispatched, End::kLost);
    }
    prefillers_.erase(found);
  }
  must(fabric_.disconnect(lost.peer));
}

// ---- The life of a dispatch ----

void Decoder::dispatch_waiting() {
  while (!waiting_.empty()) {
    const Fabric::Peer prefiller = pick_prefiller();
    if (prefiller == Fabric::Peer{}) return;
    auto slot = pool_.take(waiting_.front().page_count);
    if (!slot) return;
    const Request request = waiting_.front();
    waiting_.pop_front();
    if (!dispatch(request, prefiller, std::move(*slot))) return;
  }
}

/// The one with the least to do; none: all are busy, or none is here.
Fabric::Peer Decoder::pick_prefiller() {
  constexpr size_t kDispatchedMax = 2;
  Fabric::Peer best{};
  size_t least = kDispatchedMax;
  for (const auto& [peer, prefiller] : prefillers_) {
    if (prefiller.is_leaving || prefiller.dispatched >= least) continue;
    best = peer;
    least = prefiller.dispatched;
  }
  return best;
}

/// False: the prefiller cannot be reached, which will be told. The request waits for another one.
bool Decoder::dispatch(const Request& request, Fabric::Peer prefiller, PagePool::Slot slot) {
  Dispatched dispatched;
  dispatched.request = request;
  dispatched.number = next_number_++;
  dispatched.prefiller = prefiller;
  dispatched.slot = std::move(slot);
  dispatched.immediate = must(fabric_.acquire_immediate());
  moved_ = Clock::now();
  dispatched.deadline = moved_ + kPushLimit;
  ++prefillers_[prefiller].dispatched;
  const Fabric::Immediate immediate = dispatched.immediate;
  const auto place = dispatches_.emplace(immediate, std::move(dispatched)).first;
  // The count says how much has come: nobody sends a message when all is there.
  must(fabric_.on_count(immediate, place->second.expected() / 3));
  must(fabric_.on_count(immediate, place->second.expected()));
  const bool is_told = tell(place->second).ok();
  if (!is_told) end(place, End::kLost);
  return is_told;
}

/// Grants the cache and the tail to this prefiller, until this dispatch ends.
braid::Status Decoder::tell(Dispatched& dispatched) {
  const auto cache =
      fabric_.grant(pool_.cache(), dispatched.prefiller, 0, cache_bytes(PagePool::kPages));
  if (!cache.ok()) return cache.status();
  dispatched.grants.push_back(cache.value().grant);
  const auto tail = fabric_.grant(pool_.tails(), dispatched.prefiller,
                                  uint64_t{dispatched.slot.tail} * kTailBytes, kTailBytes);
  if (!tail.ok()) return tail.status();
  dispatched.grants.push_back(tail.value().grant);
  return send(fabric_, dispatched.prefiller,
              Dispatch{dispatched.number, dispatched.immediate, dispatched.request.step_us,
                       PagePool::kPages, dispatched.slot.pages, cache.value().descriptor,
                       tail.value().descriptor});
}

void Decoder::counted(Dispatches::iterator place, uint64_t count) {
  Dispatched& dispatched = place->second;
  if (dispatched.is_cancelled) return;  // whatever has come: its prefiller is to confirm
  if (count >= dispatched.expected()) return end(place, End::kDecoded);
  if (dispatched.request.is_cancelled_midway) return cancel(dispatched);
  if (at_middle_) at_middle_(prefillers_[dispatched.prefiller].name);
}

/// Its pages are not free before the prefiller has confirmed that it writes no more.
void Decoder::cancel(Dispatched& dispatched) {
  dispatched.is_cancelled = true;
  dispatched.deadline = Clock::now() + kConfirmLimit;
  (void)send(fabric_, dispatched.prefiller, Cancel{dispatched.number});
}

void Decoder::confirmed(uint64_t number) {
  const auto found = std::find_if(dispatches_.begin(), dispatches_.end(),
                                  [&](const auto& each) { return each.second.number == number; });
  if (found != dispatches_.end() && found->second.is_cancelled) end(found, End::kCancelled);
}

void Decoder::watch_deadlines() {
  for (auto each = dispatches_.begin(); each != dispatches_.end();) {
    const auto dispatched = each++;
    if (Clock::now() < dispatched->second.deadline) continue;
    if (dispatched->second.is_cancelled)
      end(dispatched, End::kLost);
    else
      cancel(dispatched->second);
  }
}

/// What is dispatched ends by its own deadline.
void Decoder::watch_patience() const {
  if (waiting_.empty() || !dispatches_.empty() || Clock::now() < moved_ + patience_) return;
  const std::string waited = std::to_string(waiting_.size()) + " requests have waited for " +
                             std::to_string(patience_.count()) + " s: ";
  die(waited + (prefillers_.empty()
                    ? "no prefiller is here. Start one: kv_push prefill ADDRESS DECODER"
                    : "the pages rest until prefillers that are silent answer, or end"));
}

void Decoder::end(Dispatches::iterator place, End how) {
  moved_ = Clock::now();
  const Dispatched dispatched = std::move(place->second);
  dispatches_.erase(place);
  Prefiller& prefiller = prefillers_[dispatched.prefiller];
  --prefiller.dispatched;
  const uint64_t expected = dispatched.expected();
  const uint64_t count = must(fabric_.wait_count(dispatched.immediate, expected, braid::Limit(0)));
  // Decoding would begin here: all bytes are there once they have been counted.
  if (how == End::kDecoded) pool_.verify(dispatched.slot, dispatched.number);
  resting_.push_back({dispatched.slot, dispatched.grants, dispatched.number, dispatched.immediate,
                      expected - count, Clock::now() + kFenceLimit});

  const bool is_over = how == End::kDecoded || dispatched.request.is_cancelled_midway;
  if (!is_over) waiting_.push_front(dispatched.request);
  ++(how == End::kDecoded     ? tally_.decoded
     : how == End::kCancelled ? tally_.cancelled
                              : tally_.lost);
  const char* ending = how == End::kDecoded     ? "decoded, every byte is right"
                       : how == End::kCancelled ? "cancelled and confirmed"
                                                : "lost";
  std::printf("dispatch %lu to %s: %lu of %lu immediates, %s\n",
              static_cast<unsigned long>(dispatched.number), prefiller.name.c_str(),
              static_cast<unsigned long>(count), static_cast<unsigned long>(expected), ending);
  std::fflush(stdout);
}

/// Asks, and does not wait: a prefiller may be silent, and others go on. True: nothing of these
/// grants can land any more.
bool Decoder::fence(const std::vector<Fabric::Grant>& grants) {
  bool is_fenced = true;
  for (const Fabric::Grant grant : grants)
    is_fenced = must(fabric_.revoke(grant, braid::Limit(0))) == Fabric::Fence::kFenced && is_fenced;
  if (!is_fenced) return false;
  for (const Fabric::Grant grant : grants) must(fabric_.forget(grant));
  return true;
}

/// Quarantined memory is fenced once its writer has answered after all, or its process has ended.
void Decoder::look_at_resting() {
  for (size_t i = resting_.size(); i-- > 0; resting_.pop_front()) {
    Resting& resting = resting_.front();
    const bool is_fenced = fence(resting.grants);
    const bool is_late = !is_fenced && !resting.is_quarantined && Clock::now() > resting.deadline;
    if (is_late || (is_fenced && !resting.is_quarantined))
      must(fabric_.release(resting.immediate, is_fenced ? 0 : resting.missing));
    if (is_fenced && resting.is_quarantined) must(fabric_.forgive(resting.immediate));
    if (is_fenced) pool_.give_back(resting.slot);
    if (is_late) ++tally_.quarantined;
    resting.is_quarantined = resting.is_quarantined || is_late;
    if (is_fenced || is_late)
      std::printf("the pages of dispatch %lu are %s\n", static_cast<unsigned long>(resting.number),
                  is_fenced ? "free" : "quarantined");
    if (!is_fenced) resting_.push_back(std::move(resting));
  }
}

}  // namespace kv_push
