#include "fabric/worker.h"

#include <algorithm>
#include <utility>

namespace braid::fabric {
namespace {

constexpr size_t kCompletionsAtOnce = 64;
/// What several slices have together where there are several rails: a slow rail delays the end of a
/// write no more than one large slice would.
constexpr uint64_t kGatheredMax = Domain::kGatheredBytesMax;

bool follows(const Segment& last, const Segment& next) {
  return last.source.data() + last.source.size() == next.source.data() &&
         last.target_address + last.source.size() == next.target_address;
}

/// Whether slices of this transfer may go over this rail: the healthiest of its rails carry it.
bool takes(size_t rail, const Transfer& transfer) {
  if (!transfer.rails.has(rail)) return false;
  const std::vector<Route>& routes = *transfer.target->routes;
  const unsigned rank = routes[rail].health.rank();
  if (rank == 0) return true;
  for (size_t other = 0; other < routes.size(); ++other)
    if (transfer.rails.has(other) && routes[other].health.rank() < rank) return false;
  return true;
}

}  // namespace

Worker::Worker(std::vector<std::unique_ptr<Domain>> rails, Listener& listener)
    : listener_(listener), completions_(kCompletionsAtOnce) {
  for (std::unique_ptr<Domain>& domain : rails) rails_.push_back({std::move(domain), 0, 0, 0});
}

bool Worker::Rail::has_room(const Route& route) const {
  const Traits& traits = domain->traits();
  if (route.under_way == 0) return true;
  return under_way < traits.postings_max && under_way_bytes < traits.posted_bytes_max;
}

uint64_t Worker::start(Transfer&& transfer) {
  const uint64_t id = transfers_.add(std::move(transfer));
  Transfer& started = *transfers_.find(id);
  ++started.target->live;
  if (started.plan.slice_count() > 0)
    enqueue(id, started);
  else
    end_if_drained(id, started);
  return id;
}

void Worker::enqueue(uint64_t id, const Transfer& transfer) {
  PeerQueue& queue = queues_[transfer.target->routes];
  queue.routes = transfer.target->routes;
  queue.transfers.push_back(id);
  if (!std::exchange(queue.has_turn, true)) turns_.push_back(&queue);
}

void Worker::stop(uint64_t id, Failure why) {
  Transfer* transfer = transfers_.find(id);
  if (transfer == nullptr || transfer->has_ended) return;
  transfer->is_late = transfer->is_late || why == Failure::kDeadline;
  if (why == Failure::kDeadline) suspect_late(id, *transfer);
  // A transfer that is posted completely may still end well, by its deadline.
  const bool is_all_posted = transfer->next_slice == transfer->plan.slice_count();
  if (is_all_posted && why != Failure::kDeadline) return;
  if (transfer->failure == Failure::kNone) transfer->failure = why;
  end_if_drained(id, *transfer);
}

/// A rail that holds slices beyond their deadline may be broken without reporting it.
void Worker::suspect_late(uint64_t id, const Transfer& transfer) {
  if (transfer.under_way == 0) return;
  postings_.for_each([&](uint64_t, const Posting& posting) {
    if (posting.transfer == id) (*transfer.target->routes)[posting.rail].health.suspect(now_ns_);
  });
  listener_.route_suspected(transfer);
}

void Worker::stop_all(const Target& target, Failure why) {
  if (target.live == 0) return;
  transfers_.for_each([&](uint64_t id, const Transfer& transfer) {
    if (transfer.target == &target) stop(id, why);
  });
}

/// The target of a transfer that has ended may be gone.
void Worker::stop_all(const std::vector<Route>& routes, Failure why) {
  transfers_.for_each([&](uint64_t id, const Transfer& transfer) {
    if (!transfer.has_ended && transfer.target->routes == &routes) stop(id, why);
  });
}

TicketState Worker::state(uint64_t id) const {
  const Transfer& transfer = *transfers_.find(id);
  if (transfer.has_ended)
    return transfer.failure == Failure::kNone ? TicketState::kDone : TicketState::kFailed;
  return transfer.is_late ? TicketState::kQuarantined : TicketState::kPending;
}

Failure Worker::failure(uint64_t id) const { return transfers_.find(id)->failure; }

void Worker::forget(uint64_t id) {
  Transfer* transfer = transfers_.find(id);
  if (transfer == nullptr) return;
  transfer->is_forgotten = true;
  if (transfer->has_ended) transfers_.erase(id);
}

/// A transfer that was stopped before it was posted completely may still be in the queue.
void Worker::forget_routes(const std::vector<Route>& routes) {
  const auto queue = queues_.find(&routes);
  if (queue == queues_.end()) return;
  std::erase(turns_, &queue->second);
  queues_.erase(queue);
}

bool Worker::step(uint64_t now_ns) {
  now_ns_ = now_ns;
  const bool posted = fill();
  const bool completed = poll();
  return (completed && fill()) || posted || completed;
}

bool Worker::fill() {
  bool posted = false;
  for (size_t i = 0; i < rails_.size() && !turns_.empty(); ++i)
    posted = fill((first_rail_ + i) % rails_.size()) || posted;
  first_rail_ = (first_rail_ + 1) % rails_.size();
  return posted;
}

/// The rail pulls slices for the peers in turns. A peer that is gone may look like a full queue for
/// ever: it must not hold up the others.
bool Worker::fill(size_t rail) {
  bool posted = false;
  ++fills_;
  for (size_t passed = 0; passed < turns_.size();) {
    PeerQueue& queue = *turns_.front();
    turns_.pop_front();
    const bool is_posted = rails_[rail].has_room((*queue.routes)[rail]) && post_next(rail, queue);
    posted = posted || is_posted;
    queue.has_turn = !queue.transfers.empty();
    if (!queue.has_turn) continue;
    turns_.push_back(&queue);
    passed = is_posted ? 0 : passed + 1;
  }
  return posted;
}

/// A full queue is tried only once in each fill: on some wires a try takes a lock that the peer
/// needs to empty the queue.
bool Worker::post_next(size_t rail, PeerQueue& queue) {
  if (queue.full_in_fill == fills_) return false;
  make_batch(rail, queue);
  if (batch_.count == 0) return false;
  const size_t taken = rails_[rail].domain->post_writes(batch_.writes);
  for (size_t i = 0; i < taken; ++i) posted(rail, batch_.gathered[i]);
  if (taken == batch_.count) return true;
  queue.full_in_fill = fills_;
  for (size_t i = batch_.count; i-- > taken;) {
    postings_.erase(batch_.writes[i].context);
    give_back(queue, batch_.gathered[i]);
  }
  if (taken > 0) return true;
  const Transfer& refused = *transfers_.find(batch_.gathered[0].transfer);
  Route& route = (*refused.target->routes)[rail];
  if (route.under_way == 0 && route.health.refused(now_ns_)) listener_.route_suspected(refused);
  return false;
}

/// The next write of the queue, and small ones after it that go to the same target: so they cost
/// one look at the network together.
void Worker::make_batch(size_t rail, PeerQueue& queue) {
  batch_.count = 0;
  batch_.size_bytes = 0;
  batch_.writes.clear();
  for (size_t left = queue.transfers.size(); left > 0; --left) {
    const uint64_t id = queue.transfers.front();
    queue.transfers.pop_front();
    Transfer* transfer = transfers_.find(id);
    if (transfer == nullptr || transfer->failure != Failure::kNone) continue;
    if (!takes(rail, *transfer)) {  // it goes over other rails
      queue.transfers.push_back(id);
      continue;
    }
    if (!add_to_batch(rail, id, *transfer)) return queue.transfers.push_front(id);
    if (transfer->next_slice < transfer->plan.slice_count()) queue.transfers.push_back(id);
  }
}

/// False: the batch is complete without it.
bool Worker::add_to_batch(size_t rail, uint64_t id, Transfer& transfer) {
  const Rail& here = rails_[rail];
  const Traits& traits = here.domain->traits();
  if (batch_.count > 0) {
    const bool is_alike = transfer.source == batch_.source && transfer.target == batch_.target;
    if (!is_alike || batch_.count == traits.batched_writes_max ||
        batch_.size_bytes >= Domain::kBatchBytesMax ||
        here.under_way + batch_.count >= traits.postings_max)
      return false;
  }
  if (batch_.gathered.size() == batch_.count) batch_.gathered.emplace_back();
  Gathered& gathered = batch_.gathered[batch_.count];
  gather(rail, transfer, gathered);
  const uint64_t size_bytes = batch_.size_bytes + gathered.size_bytes;
  if (batch_.count > 0 && size_bytes > Domain::kBatchBytesMax) return false;
  gathered.transfer = id;
  transfer.next_slice += gathered.slices;
  batch_.source = transfer.source;
  batch_.target = transfer.target;
  batch_.size_bytes = size_bytes;
  batch_.writes.push_back(write_of(rail, transfer, gathered));
  ++batch_.count;
  return true;
}

/// Gathers the next slice, and those after it that fit into the same write: so small pages cost one
/// posting together. Slices that are adjacent on both sides become one segment.
void Worker::gather(size_t rail, const Transfer& transfer, Gathered& gathered) const {
  const Target& target = *transfer.target;
  const Domain& domain = *rails_[rail].domain;
  const size_t segments_max = target.gathers ? domain.traits().segments_max : 1;
  const uint64_t bytes_max =
      rails_.size() == 1 ? domain.gathered_bytes_max(target.rails[rail]) : kGatheredMax;
  std::vector<Segment>& segments = gathered.segments;
  segments.clear();
  gathered.slices = 0;
  gathered.size_bytes = 0;
  for (uint64_t index = transfer.next_slice; index < transfer.plan.slice_count(); ++index) {
    const Slice slice = transfer.plan.slice(index);
    const Segment next{transfer.source->memory.subspan(slice.source_offset_bytes, slice.size_bytes),
                       target.rails[rail].base + slice.target_offset_bytes};
    if (segments.empty())
      segments.push_back(next);
    else if (segments_max == 1 || gathered.size_bytes + slice.size_bytes > bytes_max)
      break;
    else if (Segment& last = segments.back(); follows(last, next))
      last.source = {last.source.data(), last.source.size() + slice.size_bytes};
    else if (segments.size() < segments_max)
      segments.push_back(next);
    else
      break;
    gathered.size_bytes += slice.size_bytes;
    ++gathered.slices;
  }
}

Write Worker::write_of(size_t rail, const Transfer& transfer, const Gathered& gathered) {
  const Target& target = *transfer.target;
  Write write;
  write.peer = (*target.routes)[rail].peer;
  write.region = transfer.source->rails[rail];
  write.source = gathered.segments.front().source;
  write.target_address = gathered.segments.front().target_address;
  write.target_key = target.rails[rail].key;
  write.further = std::span(gathered.segments).subspan(1);
  write.immediate = transfer.immediate;
  write.slices = gathered.slices;
  write.context = postings_.add(
      {gathered.transfer, static_cast<uint32_t>(rail), gathered.slices, gathered.size_bytes});
  return write;
}

void Worker::posted(size_t rail, const Gathered& gathered) {
  Transfer& transfer = *transfers_.find(gathered.transfer);
  Route& route = (*transfer.target->routes)[rail];
  route.health.accepted();
  ++transfer.under_way;
  ++transfer.target->under_way;
  ++rails_[rail].under_way;
  rails_[rail].under_way_bytes += gathered.size_bytes;
  ++route.under_way;
  route.under_way_bytes += gathered.size_bytes;
}

/// The queue was full: these slices of the transfer are the next ones again.
void Worker::give_back(PeerQueue& queue, const Gathered& gathered) {
  Transfer& transfer = *transfers_.find(gathered.transfer);
  const bool is_queued = transfer.next_slice < transfer.plan.slice_count();
  transfer.next_slice -= gathered.slices;
  if (!is_queued) queue.transfers.push_front(gathered.transfer);
}

bool Worker::poll() {
  bool any = false;
  for (size_t rail = 0; rail < rails_.size(); ++rail) {
    const size_t count = rails_[rail].domain->poll(completions_);
    any = any || count > 0 || rails_[rail].domain->has_copied();
    for (size_t i = 0; i < count; ++i) {
      const Completion completion = completions_[i];
      if (completion.event == Event::kImmediate) {
        rails_[rail].immediates += completion.slices;
        listener_.immediate_arrived(completion.immediate, completion.slices);
      } else if ((completion.context & kForeign) != 0)
        listener_.foreign_completed(rail, completion);
      else if (completion.event == Event::kPosted)
        posting_ended(completion);
    }
  }
  return any;
}

/// A transfer has failed only once all its postings have ended: until then others read the source.
/// Nothing is posted again, since that could double an immediate.
void Worker::posting_ended(const Completion& completion) {
  const Posting* known = postings_.find(completion.context);
  if (known == nullptr) return;
  const Posting posting = *known;
  postings_.erase(completion.context);
  --rails_[posting.rail].under_way;
  rails_[posting.rail].under_way_bytes -= posting.size_bytes;
  Transfer& transfer = *transfers_.find(posting.transfer);
  --transfer.under_way;
  --transfer.target->under_way;
  Route& route = (*transfer.target->routes)[posting.rail];
  --route.under_way;
  route.under_way_bytes -= posting.size_bytes;
  if (completion.ok) {
    route.writes += posting.slices;
    route.bytes += posting.size_bytes;
    route.rate.add(posting.size_bytes, now_ns_);
  } else {
    ++route.failures;
    transfer.target->is_clean = false;
    if (transfer.failure == Failure::kNone) transfer.failure = Failure::kNetwork;
    if (!transfer.is_probe) route.health.suspect(now_ns_);
    listener_.route_suspected(transfer);
  }
  end_if_drained(posting.transfer, transfer);
}

void Worker::end_if_drained(uint64_t id, Transfer& transfer) {
  if (transfer.under_way > 0 || transfer.has_ended) return;
  if (transfer.failure == Failure::kNone && transfer.next_slice < transfer.plan.slice_count())
    return;
  transfer.has_ended = true;
  --transfer.target->live;
  listener_.transfer_ended(id, transfer);
  if (transfer.is_forgotten) transfers_.erase(id);
}

}  // namespace braid::fabric
