// Scheduler: chooses slices and ways, and follows postings until they end.
#include <algorithm>

#include "transfer/scheduler_state.h"

namespace braid::transfer {
namespace {

// After how long a path that had no room is asked again if nothing ends there before.
constexpr uint64_t kRefusedPauseNs = 20'000;
// A path with nothing in flight that has no room for this long may never have any.
constexpr uint64_t kRefusedMaxNs = 100'000'000;

// If nothing has changed, `next` asks again after this time, since slices in flight may be late
// now.
constexpr uint64_t kNothingNs = 20'000;

// Flows of the same way set usually wait for room together: if this many in a row wait, the others
// are not asked.
constexpr size_t kFlowsAsked = 8;

// How long a guest's slice may keep a rail busy.
constexpr double kGuestSliceNs = 5'000;

// How long a bulk slice may keep a rail busy while urgent requests come, which may wait for two of
// them. But a slice is never smaller: it would cost more than it carries.
constexpr double kClearSliceNs = 400'000;
constexpr uint64_t kClearSliceBytesMin = 16 << 10;

}  // namespace

Scheduler::Scheduler(SchedulerOptions options, std::unique_ptr<SprayPolicy> policy)
    : options_(options),
      policy_(policy ? std::move(policy) : std::make_unique<LateBinding>()),
      random_(options.seed) {}
Scheduler::~Scheduler() = default;
Scheduler::Scheduler(Scheduler&&) noexcept = default;
Scheduler& Scheduler::operator=(Scheduler&&) noexcept = default;

uint32_t Scheduler::add_rail(const RailSpec& spec) { return rails_.add(Rail(spec)); }

uint32_t Scheduler::add_path(const PathSpec& spec) {
  const uint32_t path = paths_.add(Path(spec));
  rails_[spec.local_rail].paths.push_back(path);
  if (spec.remote_rail != kNoRail) rails_[spec.remote_rail].paths.push_back(path);
  peers_[spec.peer].paths.push_back(path);
  return path;
}

uint32_t Scheduler::add_ways(std::vector<Way> ways) {
  WaySet set{std::move(ways)};
  uint8_t best = std::numeric_limits<uint8_t>::max();
  for (const Way& way : set.all) best = std::min(best, way.rank);
  for (const Way& way : set.all) {
    if (way.rank != best) continue;
    ++set.spread;
    const PathSpec& spec = paths_[way.path].spec;
    set.slice_bytes_max = std::min(set.slice_bytes_max, spec.slice_bytes_max);
  }
  const auto first = set.all.empty() ? std::nullopt : std::optional(set.all.front().path);
  const uint32_t number = ways_.add(std::move(set));
  if (first) peers_[paths_[*first].spec.peer].ways.push_back(number);
  return number;
}

size_t Scheduler::spread_of(uint32_t ways) const { return ways_[ways].spread; }

void Scheduler::remove_peer(uint64_t number) {
  const auto peer = peers_.find(number);
  if (peer == peers_.end()) return;
  for (const uint32_t path : peer->second.paths) {
    retire_path(path);
    paths_.erase(path);
  }
  for (const uint32_t set : peer->second.ways) ways_.erase(set);
  peers_.erase(peer);
}

void Scheduler::remove_rail(uint32_t rail) { rails_.erase(rail); }

// ---- Which slice goes where ----

std::optional<Posting> Scheduler::next(uint64_t now_ns) {
  look(now_ns);
  if (!has_changed_ && now_ns < nothing_ns_ + kNothingNs) return std::nullopt;
  const auto turns = [&](Urgency urgency) -> Turns& { return turns_[static_cast<int>(urgency)]; };
  const bool has_urgent = !turns(Urgency::kUrgent).is_empty();
  const bool has_bulk = !turns(Urgency::kBulk).is_empty();
  const Urgency first = urgency_.first(has_urgent, has_bulk);
  const Urgency second = first == Urgency::kBulk ? Urgency::kUrgent : Urgency::kBulk;
  for (const Urgency urgency : {first, second}) {
    std::optional<Posting> posting;
    waiting_flows_ = 0;
    uint32_t from = 0;
    turns(urgency).take(turn_bytes_, [&](uint64_t flow) {
      from = static_cast<uint32_t>(flow);
      return post_from(from, now_ns, posting);
    });
    if (!posting) continue;
    urgency_.posted(urgency, posting->size_bytes, urgency == Urgency::kUrgent && has_bulk);
    leave_turns_if_empty(from);
    return posting;
  }
  has_changed_ = false;
  nothing_ns_ = now_ns;
  return std::nullopt;
}

// The next slice of a request: one that is posted again, with its number, or a new one, with 0.
std::pair<uint64_t, Span> Scheduler::next_slice(Request& request, uint64_t now_ns) {
  while (!request.again.empty()) {
    const Slice* slice = slices_.find(request.again.front());
    if (slice != nullptr && slice->is_queued) return {request.again.front(), slice->span};
    request.again.pop_front();
  }
  if (request.spec.is_whole) return {0, {0, request.spec.size_bytes}};
  // The last slices are small, so that all rails end together.
  const WaySet& ways = ways_[request.spec.ways];
  const uint64_t even = request.slicer.left_bytes() / std::max<size_t>(1, ways.spread);
  const uint64_t least = options_.slices.slice_bytes_min;
  const uint64_t wanted = is_in_the_way(request, now_ns) ? least : std::max(least, even);
  return {0, request.slicer.peek(std::min(wanted, ways.slice_bytes_max))};
}

// Bulk of which urgent slices may have to wait for what it has posted.
bool Scheduler::is_in_the_way(const Request& request, uint64_t now_ns) const {
  return request.spec.urgency == Urgency::kBulk && urgency_.is_urgent_about(now_ns);
}

uint64_t Scheduler::post_from(uint32_t index, uint64_t now_ns, std::optional<Posting>& posting) {
  Flow& flow = flows_[index];
  const uint64_t slot = head_of(flow);
  Request& request = *requests_.find(slot);
  auto [id, span] = next_slice(request, now_ns);
  const std::optional<uint32_t> avoided = id == 0 ? std::nullopt : slices_.find(id)->failed_path;
  find_ways(request.spec.ways, span.size_bytes, flow.urgency(), now_ns, avoided, views_);
  const bool is_reachable =
      std::any_of(views_.begin(), views_.end(), [](const WayView& way) { return way.is_usable; });
  uint64_t& unreachable_ns = ways_[request.spec.ways].unreachable_ns;
  if (!is_reachable) {
    if (unreachable_ns == kNever) {
      unreachable_ns = now_ns;
      add_timer(now_ns + options_.retry.unreachable_ns, TimerOf::kWays, request.spec.ways);
    }
    return FairOrder::kNorOthers;
  }
  unreachable_ns = kNever;
  note_full_rails();
  const size_t active = turns_[static_cast<int>(flow.urgency())].size();
  const uint64_t backlog =
      std::min(backlog_bytes_[static_cast<int>(flow.urgency())], flow.backlog_bytes * active);
  const std::optional<size_t> way =
      policy_->choose({request.spec.address + span.offset, span.size_bytes, request.spec.source,
                       flow.urgency(), backlog},
                      views_);
  if (!way) {
    look_when_there_is_room(now_ns);
    const bool is_same = std::exchange(waiting_ways_, request.spec.ways) == request.spec.ways;
    waiting_flows_ = is_same ? waiting_flows_ + 1 : 1;
    return waiting_flows_ < kFlowsAsked ? 0 : FairOrder::kNorOthers;
  }
  const bool is_new = id == 0 && !request.spec.is_whole;
  if (is_new && options_.is_window_limited) {
    const auto carried = [&](double ns) { return static_cast<uint64_t>(ns * views_[*way].rate); };
    if (views_[*way].is_guest)
      span = request.slicer.peek(std::max(options_.slices.slice_bytes_min, carried(kGuestSliceNs)));
    if (is_in_the_way(request, now_ns))
      span = request.slicer.peek(
          std::min(span.size_bytes, std::max(kClearSliceBytesMin, carried(kClearSliceNs))));
  }
  turn_bytes_ = turn_bytes();
  take_backlog(request, span.size_bytes);
  if (id == 0) {
    request.slicer.take(span);
    id = slices_.add(Slice(slot, span));
  } else {
    request.again.pop_front();
    request.again_bytes -= span.size_bytes;
    slices_.find(id)->is_queued = false;
  }
  posting = open(id, views_[*way], now_ns);
  return span.size_bytes;
}

// ---- Postings ----

Posting Scheduler::open(uint64_t id, const WayView& way, uint64_t now_ns) {
  Slice& slice = *slices_.find(id);
  Request& request = *requests_.find(slice.request);
  Path& path = paths_[way.path];
  const uint64_t posting = postings_.add({id, way.path, slice.span.size_bytes, now_ns, way.eta_ns,
                                          request.open.size(), request.spec.urgency, false, 0});
  request.open.push_back(posting);
  ++slice.open_count;
  if (slice.failed_path) ++request.reissued;
  path.open.push_back(posting);
  occupy(*postings_.find(posting));
  set_path_timer(way.path);
  return {posting, request.spec.id, slice.span.offset, slice.span.size_bytes, way.path};
}

void Scheduler::occupy(const Open& open) {
  Path& path = paths_[open.path];
  ++path.open_count;
  for_each_lane(*this, path, [&](Lane& lane) {
    if (lane.bytes == 0) lane.begun_ns = open.posted_ns;
    lane.bytes += open.size_bytes;
    if (open.urgency == Urgency::kUrgent) lane.urgent_bytes += open.size_bytes;
    lane.keep_pace(open.size_bytes, open.posted_ns);
  });
}

// A late posting no longer counts as in flight, since it would keep others off its rails.
void Scheduler::vacate(const Open& open) {
  Path& path = paths_[open.path];
  --path.open_count;
  for_each_lane(*this, path, [&](Lane& lane) {
    lane.bytes -= open.size_bytes;
    if (open.urgency == Urgency::kUrgent) lane.urgent_bytes -= open.size_bytes;
  });
}

// The last one takes its place: a path that stood still for long may have very many.
void Scheduler::leave_late(Path& path, const Open& open) {
  postings_.find(path.late.back())->late_index = open.late_index;
  path.late[open.late_index] = path.late.back();
  path.late.pop_back();
}

// Removes a posting that has ended: nothing of it will land any more.
void Scheduler::close(uint64_t posting) {
  const Open open = *postings_.find(posting);
  Path& path = paths_[open.path];
  Slice& slice = *slices_.find(open.slice);
  Request& request = *requests_.find(slice.request);
  postings_.find(request.open.back())->index = open.index;
  request.open[open.index] = request.open.back();
  request.open.pop_back();
  if (open.is_late)
    leave_late(path, open);
  else
    vacate(open);
  postings_.erase(posting);
  leave_front(path);
  --slice.open_count;
  if (slice.open_count == 0 && (slice.is_delivered || request.is_stopped))
    slices_.erase(open.slice);
}

void Scheduler::leave_front(Path& path) {
  while (!path.open.empty()) {
    const Open* first = postings_.find(path.open.front());
    if (first != nullptr && !first->is_late) return;
    path.open.pop_front();
  }
}

void Scheduler::measure(const Open& open, uint64_t now_ns) {
  Path& path = paths_[open.path];
  measure_base(path.base, path.lane, open.size_bytes, open.posted_ns, now_ns);
  for_each_lane(*this, path, [&](Lane& lane) {
    lane.delivered(open.size_bytes, open.posted_ns, path.base.ns(), now_ns);
  });
  policy_->delivered(open.path, open.size_bytes, now_ns - open.posted_ns);
}

void Scheduler::ended(uint64_t posting, Ending how, uint64_t now_ns) {
  Open* open = postings_.find(posting);
  if (open == nullptr) return;  // its path was fenced
  has_changed_ = true;
  if (open->slice == 0) return probe_ended(posting, *open, how == Ending::kDone, now_ns);
  posting_ended(posting, *open, how, now_ns);
}

void Scheduler::posting_ended(uint64_t posting, Open& open, Ending how, uint64_t now_ns) {
  const uint32_t index = open.path;
  const uint64_t slice = open.slice;
  const uint64_t slot = slices_.find(slice)->request;
  Path& path = paths_[index];
  switch (how) {
    case Ending::kDone:
      // A late posting shows how long the path stood still, not how fast it is.
      if (!open.is_late) measure(open, now_ns);
      path.delivered_bytes += open.size_bytes;
      ++path.delivered_slices;
      path.refused_since_ns = kNever;
      path.no_room_until_ns = 0;
      for (const uint32_t rail : {path.spec.local_rail, path.spec.remote_rail})
        if (rail != kNoRail) {
          rails_[rail].record.delivered_ns = now_ns;
          rails_[rail].delivered_bytes += open.size_bytes;
        }
      deliver(slice);
      change(index, now_ns, [&](Health& health) { health.delivered(now_ns); });
      close(posting);
      break;
    case Ending::kFailed:
    case Ending::kLost:
      count_failure(slice);
      if (!open.is_late) {
        ++path.reissued_slices;
        reissue(posting);
      }
      if (how == Ending::kFailed) close(posting);
      if (options_.heals)
        change(index, now_ns, [&](Health& health) { health.failed(now_ns, jitter()); });
      break;
    case Ending::kRefused:
      if (!open.is_late) requeue(slice);
      close(posting);
      refused(index, now_ns);
      break;
    case Ending::kRejected:
      if (!open.is_late) requeue(slice);
      close(posting);
      break;
  }
  set_path_timer(index);
  end_if_final(slot);
}

void Scheduler::refused(uint32_t index, uint64_t now_ns) {
  Path& path = paths_[index];
  path.no_room_until_ns = now_ns + kRefusedPauseNs;
  if (path.open_count > 0) return;
  if (path.refused_since_ns == kNever) path.refused_since_ns = now_ns;
  if (now_ns - path.refused_since_ns < kRefusedMaxNs || !options_.heals) return;
  path.refused_since_ns = kNever;
  change(index, now_ns, [&](Health& health) { health.failed(now_ns, jitter()); });
}

// ---- What is seen ----

std::optional<SchedulerEvent> Scheduler::next_event() {
  if (events_.empty()) return std::nullopt;
  SchedulerEvent event = events_.front();
  events_.pop_front();
  return event;
}

PathView Scheduler::view(uint32_t index, uint64_t now_ns) const {
  const Path& path = paths_[index];
  return {path.health.state(),   path.is_fencing,      path.lane.gbps(now_ns),
          path.base.ns() / 1000, path.lane.bytes,      path.delivered_bytes,
          path.delivered_slices, path.reissued_slices, share(path.spec.local_rail)};
}

}  // namespace braid::transfer
