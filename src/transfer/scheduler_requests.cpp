// Scheduler: requests, the flows that they wait in, and when they are final.
#include <algorithm>

#include "transfer/scheduler_state.h"

namespace braid::transfer {
namespace {

// Requests without a usable way fail together, up to so much late: each look visits all of their
// way set.
constexpr uint64_t kLookAgainNs = 1'000'000;

}  // namespace

void Scheduler::add(RequestSpec spec, uint64_t now_ns) {
  if (!options_.yields_to_urgent) spec.urgency = Urgency::kBulk;
  if (spec.size_bytes == 0) {
    events_.push_back(RequestEnded{spec.id, Outcome::kDone, 0, 0});
    return;
  }
  has_changed_ = true;
  const uint64_t deadline_ns = spec.deadline_ns, id = spec.id, peer = spec.peer;
  const uint32_t flow = flow_of(spec);
  if (spec.urgency == Urgency::kUrgent) urgency_.urgent_added(now_ns);
  SliceRules rules = rules_of(spec.ways);
  rules.slice_bytes_min = std::max(rules.slice_bytes_min, spec.slice_bytes_min);
  const uint64_t slot = requests_.add(Request(std::move(spec), rules, now_ns));
  Request& request = *requests_.find(slot);
  request.flow = flow;
  slot_of_[id] = slot;
  ++flows_[flow].requests;
  enqueue(slot, request, false);
  add_backlog(request, request.spec.size_bytes);
  std::vector<uint64_t>& of_peer = peers_[peer].requests;
  request.index = of_peer.size();
  of_peer.push_back(slot);
  if (of_peer.size() == 1)  // its broken paths are wanted now
    for (const uint32_t path : peers_[peer].paths) set_path_timer(path);
  if (deadline_ns != kNever) deadlines_.insert({deadline_ns, slot});
}

SliceRules Scheduler::rules_of(uint32_t ways) const {
  SliceRules rules = options_.slices;
  if (spread_of(ways) == 1)
    rules.slice_bytes_min = std::max(rules.slice_bytes_min, rules.lone_slice_bytes);
  return rules;
}

uint32_t Scheduler::flow_of(const RequestSpec& spec) {
  const FlowKey key{spec.peer, spec.ways, spec.source, spec.urgency};
  const auto known = flow_by_key_.find(key);
  if (known != flow_by_key_.end()) return known->second;
  uint32_t index = static_cast<uint32_t>(flows_.size());
  if (free_flows_.empty()) {
    flows_.emplace_back();
  } else {
    index = free_flows_.back();
    free_flows_.pop_back();
    flows_[index] = {};
  }
  std::vector<uint32_t>& of_ways = ways_[spec.ways].flows;
  flows_[index].key = key;
  flows_[index].place = of_ways.size();
  of_ways.push_back(index);
  return flow_by_key_[key] = index;
}

// ---- What waits ----

void Scheduler::enqueue(uint64_t slot, Request& request, bool at_front) {
  if (request.is_queued) return;
  request.is_queued = true;
  std::deque<uint64_t>& queue = flows_[request.flow].queue;
  at_front ? queue.push_front(slot) : queue.push_back(slot);
}

void Scheduler::add_backlog(Request& request, uint64_t bytes) {
  Flow& flow = flows_[request.flow];
  if (flow.backlog_bytes == 0)
    turns_[static_cast<int>(flow.urgency())].add(flow.turn(request.flow));
  flow.backlog_bytes += bytes;
  backlog_bytes_[static_cast<int>(flow.urgency())] += bytes;
}

// The request's flow keeps its turn until `leave_turns_if_empty`.
void Scheduler::take_backlog(Request& request, uint64_t bytes) {
  Flow& flow = flows_[request.flow];
  flow.backlog_bytes -= bytes;
  backlog_bytes_[static_cast<int>(flow.urgency())] -= bytes;
}

void Scheduler::leave_turns_if_empty(uint32_t index) {
  Flow& flow = flows_[index];
  if (flow.backlog_bytes == 0) turns_[static_cast<int>(flow.urgency())].remove(flow.turn(index));
}

// The first request of the flow that has bytes to post. The flow must have a backlog.
uint64_t Scheduler::head_of(Flow& flow) {
  while (true) {
    Request* request = requests_.find(flow.queue.front());
    if (request != nullptr && request->pending_bytes() > 0) return flow.queue.front();
    if (request != nullptr) request->is_queued = false;
    flow.queue.pop_front();
  }
}

// ---- Slices ----

void Scheduler::deliver(uint64_t id) {
  Slice& slice = *slices_.find(id);
  if (slice.is_delivered) return;
  slice.is_delivered = true;
  Request& request = *requests_.find(slice.request);
  request.delivered_bytes += slice.span.size_bytes;
  if (!slice.is_queued) return;
  slice.is_queued = false;
  request.again_bytes -= slice.span.size_bytes;
  take_backlog(request, slice.span.size_bytes);
  leave_turns_if_empty(request.flow);
}

// Queues a slice to be posted again, before the slices that its request has not posted yet.
void Scheduler::requeue(uint64_t id) {
  Slice& slice = *slices_.find(id);
  Request& request = *requests_.find(slice.request);
  if (slice.is_delivered || slice.is_queued || request.is_stopped) return;
  slice.is_queued = true;
  request.again.push_back(id);
  request.again_bytes += slice.span.size_bytes;
  enqueue(slice.request, request, true);
  add_backlog(request, slice.span.size_bytes);
}

void Scheduler::count_failure(uint64_t id) {
  Slice& slice = *slices_.find(id);
  if (slice.is_delivered || ++slice.failures < options_.retry.failures_max) return;
  stop(slice.request, Outcome::kFailed);
}

// ---- The end of a request ----

void Scheduler::cancel(uint64_t id, uint64_t, Outcome why) {
  const auto at = slot_of_.find(id);
  if (at == slot_of_.end()) return;
  const uint64_t slot = at->second;
  stop(slot, why);
  end_if_final(slot);
}

void Scheduler::peer_lost(uint64_t peer, uint64_t) {
  const auto lost = peers_.find(peer);
  if (lost == peers_.end()) return;
  const std::vector<uint64_t> slots = lost->second.requests;  // those that end leave it
  for (const uint64_t slot : slots) {
    stop(slot, Outcome::kPeerLost);
    end_if_final(slot);
  }
}

void Scheduler::stop(uint64_t slot, Outcome why) {
  has_changed_ = true;
  Request& request = *requests_.find(slot);
  if (request.has_outcome()) return;
  request.is_stopped = true;
  request.outcome = why;
  take_backlog(request, request.pending_bytes());
  leave_turns_if_empty(request.flow);
  request.slicer.stop();
  request.again_bytes = 0;
  for (const uint64_t id : request.again) {
    Slice* slice = slices_.find(id);
    if (slice == nullptr) continue;
    slice->is_queued = false;
    if (slice->open_count == 0) slices_.erase(id);
  }
  request.again.clear();
  for (const uint64_t posting : request.open) events_.push_back(PostingUnwanted{posting});
  fence_what_is_late(request);
}

bool Scheduler::is_stopped(uint64_t request) const {
  const auto at = slot_of_.find(request);
  return at != slot_of_.end() && requests_.find(at->second)->is_stopped;
}

void Scheduler::fence_what_is_late(const Request& request) {
  if (!request.has_outcome()) return;
  for (const uint64_t posting : request.open)
    if (const Open& open = *postings_.find(posting); open.is_late) want_fence(open.path);
}

void Scheduler::end_if_final(uint64_t slot) {
  Request* request = requests_.find(slot);
  if (request == nullptr || !request->has_outcome()) return;
  if (!request->open.empty()) return fence_what_is_late(*request);
  events_.push_back(RequestEnded{request->spec.id, request->outcome, request->delivered_bytes,
                                 request->reissued});
  slot_of_.erase(request->spec.id);
  if (request->spec.urgency == Urgency::kUrgent) urgency_.urgent_ended();
  if (request->spec.deadline_ns != kNever) deadlines_.erase({request->spec.deadline_ns, slot});
  leave_peer(*request);
  const uint32_t index = request->flow;
  requests_.erase(slot);
  if (--flows_[index].requests == 0) end_flow(index);
}

// The last one takes its place.
void Scheduler::leave_peer(const Request& request) {
  std::vector<uint64_t>& of_peer = peers_[request.spec.peer].requests;
  requests_.find(of_peer.back())->index = request.index;
  of_peer[request.index] = of_peer.back();
  of_peer.pop_back();
}

void Scheduler::end_flow(uint32_t index) {
  Flow& flow = flows_[index];
  std::vector<uint32_t>& of_ways = ways_[flow.ways()].flows;
  flows_[of_ways.back()].place = flow.place;
  of_ways[flow.place] = of_ways.back();
  of_ways.pop_back();
  flow.queue.clear();
  flow_by_key_.erase(flow.key);
  free_flows_.push_back(index);
}

void Scheduler::request_is_due(uint64_t slot) {
  deadlines_.erase(deadlines_.begin());
  stop(slot, Outcome::kDeadline);
  end_if_final(slot);
}

// ---- Reachability ----

// A path works again. The time without a usable way ends here, not when the next request is asked
// to post: others may go before it.
void Scheduler::reachable_again(uint32_t index) {
  if (!paths_[index].is_usable()) return;
  for (const uint32_t set : peers_[paths_[index].spec.peer].ways) {
    const std::vector<Way>& ways = ways_[set].all;
    if (std::any_of(ways.begin(), ways.end(), [&](const Way& way) { return way.path == index; }))
      ways_[set].unreachable_ns = kNever;
  }
}

// Fails the requests that have had no usable way for too long.
void Scheduler::look_whether_reachable(uint32_t ways, uint64_t now_ns) {
  if (!ways_.contains(ways) || ways_[ways].unreachable_ns == kNever) return;
  const uint64_t since_ns = ways_[ways].unreachable_ns, limit_ns = options_.retry.unreachable_ns;
  if (now_ns - since_ns < limit_ns) return;  // an earlier time's timer
  std::vector<uint64_t> failed;
  uint64_t left_ns = kNever;
  for (const uint32_t flow : ways_[ways].flows)
    for (const uint64_t slot : flows_[flow].queue) {
      const Request* request = requests_.find(slot);
      if (request == nullptr || request->pending_bytes() == 0) continue;
      const uint64_t waits_ns = now_ns - std::max(since_ns, request->added_ns);
      if (waits_ns >= limit_ns)
        failed.push_back(slot);
      else
        left_ns = std::min(left_ns, limit_ns - waits_ns);
    }
  for (const uint64_t slot : failed) {
    stop(slot, Outcome::kUnreachable);
    end_if_final(slot);
  }
  if (left_ns == kNever)
    ways_[ways].unreachable_ns = kNever;
  else
    add_timer(now_ns + std::max(left_ns, kLookAgainNs), TimerOf::kWays, ways);
}

}  // namespace braid::transfer
