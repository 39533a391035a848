// Scheduler: the ways of a slice as they are now, for the policy.
#include <algorithm>
#include <limits>
#include <utility>

#include "transfer/scheduler_state.h"

namespace braid::transfer {
namespace {

// A rail of a farther tier takes a slice only if it has less than this in flight.
constexpr double kGuestWindowNs = 20'000;
// How early bulk posts its next slice beside urgent ones, in base latencies. The slice must be
// there when the one before has been sent, and only the completion shows when that was.
constexpr double kLeadLatencies = 0.5;
// The length of a flow's turn, as a part of the window.
constexpr double kTurnOfWindow = 0.25;
// Of closed ways: no transport has it.
constexpr uint8_t kLastRank = std::numeric_limits<uint8_t>::max();

// Among urgent slices that wait for the same rail. They fill its window again and again, so that it
// is never clear, and without room beside them bulk would get nothing in its turn.
bool is_turn_of_bulk(const UrgencyShare& urgency) {
  return urgency.first(true, true) == Urgency::kBulk;
}

}  // namespace

// The length of a turn: the bytes that the nearest rails carry in a part of their window.
uint64_t Scheduler::turn_bytes() const {
  double rate = 0;
  for (const WayView& view : views_)
    if (view.is_usable && !view.is_guest) rate += view.rate;
  return static_cast<uint64_t>(rate * options_.window_us * 1000 * kTurnOfWindow);
}

void Scheduler::look_when_there_is_room(uint64_t now_ns) {
  uint64_t when_ns = kNever;
  for (const WayView& view : views_) when_ns = std::min(when_ns, view.room_ns);
  if (when_ns == kNever || (room_timer_ns_ > now_ns && room_timer_ns_ <= when_ns)) return;
  room_timer_ns_ = when_ns;
  add_timer(when_ns, TimerOf::kRoom, 0);
}

bool Scheduler::has_paths(uint32_t ways) const {
  const std::vector<Way>& all = ways_[ways].all;
  return std::any_of(all.begin(), all.end(),
                     [&](const Way& way) { return !paths_[way.path].is_retired; });
}

void Scheduler::set_closed(uint32_t ways, uint32_t path, bool is_closed) {
  has_changed_ = true;
  for (Way& way : ways_[ways].all)
    if (way.path == path) way.is_closed = is_closed;
}

void Scheduler::find_ways(uint32_t ways, uint64_t size_bytes, Urgency urgency, uint64_t now_ns,
                          std::optional<uint32_t> avoided, std::vector<WayView>& views) const {
  views.clear();
  bool has_other = false;
  // If there is only one way, small requests get the room that large ones get.
  const bool is_lone = spread_of(ways) == 1;
  const uint64_t room_bytes =
      is_lone ? std::max(size_bytes, options_.slices.lone_slice_bytes) : size_bytes;
  for (const Way& way : ways_[ways].all) {
    views.push_back(view_of(way, size_bytes, room_bytes, urgency, now_ns));
    has_other = has_other || (views.back().is_usable && !way.is_closed && way.path != avoided);
  }
  for (WayView& view : views)
    if (has_other && view.path == avoided) view.is_usable = false;
  leave_out_standby(views);
  limit_guests(views);
}

// Leaves out the ways of worse transports. A slice on such a way seldom arrives sooner, and
// otherwise arrives last: staging GPU memory is a hundred times slower than mapping it.
void Scheduler::leave_out_standby(std::vector<WayView>& views) {
  uint8_t best = kLastRank;
  for (const WayView& view : views)
    if (view.is_usable) best = std::min(best, view.rank);
  for (WayView& view : views) view.is_usable = view.is_usable && view.rank == best;
}

// Limits the queue of guests on a rail: slices for which the rail is the nearest may come back at
// any time, and must not find a long queue.
void Scheduler::limit_guests(std::vector<WayView>& views) const {
  uint8_t nearest = std::numeric_limits<uint8_t>::max();
  for (const WayView& view : views)
    if (view.is_usable) nearest = std::min(nearest, view.tier);
  for (WayView& view : views) {
    view.is_guest = view.tier > nearest;
    if (!view.is_guest || !options_.is_window_limited) continue;
    const double window = std::max(kGuestWindowNs * view.rate,
                                   2 * static_cast<double>(options_.slices.slice_bytes_min));
    view.has_room = view.has_room && static_cast<double>(view.in_flight_bytes) < window;
  }
}

WayView Scheduler::view_of(const Way& way, uint64_t size_bytes, uint64_t room_bytes,
                           Urgency urgency, uint64_t now_ns) const {
  const Path& path = paths_[way.path];
  WayView view;
  view.path = way.path;
  view.rail = path.spec.local_rail;
  view.tier = way.tier;
  view.rank = way.is_closed ? kLastRank : way.rank;
  view.is_usable = path.is_usable();
  if (!view.is_usable) return view;
  view.base_latency_ns = path.base.ns();
  view.in_flight_bytes = rails_[path.spec.local_rail].lane.bytes;
  view.rate = path.lane.gbps(now_ns);
  view.has_room = path.open_count < path.health.window_slices() && path.no_room_until_ns <= now_ns;
  double queue_ns = 0;
  for_each_lane(*this, path, [&](const Lane& lane) {
    const double rate = lane.gbps(now_ns);
    queue_ns = std::max(queue_ns, static_cast<double>(lane.bytes + size_bytes) / rate);
    view.rate = std::min(view.rate, rate);
    view.has_room = view.has_room && has_room(lane, room_bytes, urgency, now_ns);
  });
  if (urgency == Urgency::kBulk && !is_turn_of_bulk(urgency_) && urgency_.is_urgent_about(now_ns))
    keep_clear(view, now_ns);
  view.eta_ns = view.base_latency_ns + queue_ns;
  // If the first slice in flight is late already, it may be later still.
  if (path.open_count > 0) {
    const Open& first = *postings_.find(path.open.front());
    const uint64_t begun_ns = std::max(first.posted_ns, path.lane.rate.ended_ns());
    view.eta_ns += std::max(0.0, static_cast<double>(now_ns - begun_ns) - view.base_latency_ns -
                                     static_cast<double>(first.size_bytes) / view.rate);
  }
  keep_to_pace(view, size_bytes, urgency, now_ns);
  return view;
}

bool Scheduler::has_room(const Lane& lane, uint64_t size_bytes, Urgency urgency,
                         uint64_t now_ns) const {
  if (!options_.is_window_limited) return true;
  const double window =
      std::max(static_cast<double>(options_.window_slices_min * size_bytes) * lane.window_part(),
               lane.gbps(now_ns) * options_.window_us * 1000);
  if (urgency == Urgency::kUrgent) return static_cast<double>(lane.urgent_bytes) < window;
  const uint64_t ahead = is_turn_of_bulk(urgency_) ? lane.bytes - lane.urgent_bytes : lane.bytes;
  return static_cast<double>(ahead) < window;
}

// While urgent slices come, bulk posts its next slice just before the rail has sent the one before,
// since an urgent slice waits for all bytes that wait at the NIC.
void Scheduler::keep_clear(WayView& view, uint64_t now_ns) const {
  if (!options_.is_window_limited || !view.is_usable) return;
  const Lane& lane = rails_[view.rail].lane;
  if (lane.bytes == 0) return;
  const double due_ns = lane.sent_ns(now_ns) - kLeadLatencies * view.base_latency_ns;
  if (due_ns <= static_cast<double>(now_ns)) return;
  view.has_room = false;
  view.room_ns = static_cast<uint64_t>(due_ns) + 1;
}

// ---- What other processes leave ----

void Scheduler::set_share(uint32_t rail, const RailShare& share) {
  Lane& lane = rails_[rail].lane;
  has_changed_ = has_changed_ || lane.share != share.share || lane.pace_gbps != share.gbps;
  lane.share = share.share;
  lane.pace_gbps = share.gbps;
  if (share.gbps <= 0) lane.pace_ns = 0;
}

RailShare Scheduler::share(uint32_t rail) const {
  return {rails_[rail].lane.share, rails_[rail].lane.pace_gbps};
}

RailUse Scheduler::take_use(uint32_t index, uint64_t now_ns) {
  Rail& rail = rails_[index];
  const bool has_delivered =
      std::exchange(rail.seen_bytes, rail.delivered_bytes) != rail.delivered_bytes;
  return {rail.delivered_bytes, has_delivered || rail.lane.bytes > 0 || rail.lane.is_held(now_ns),
          std::exchange(rail.is_full, false)};
}

void Scheduler::keep_to_pace(WayView& view, uint64_t size_bytes, Urgency urgency,
                             uint64_t now_ns) const {
  const Lane& lane = rails_[view.rail].lane;
  if (urgency == Urgency::kUrgent || !lane.is_held(now_ns)) return;
  const double wait_ns = lane.pace_ns - static_cast<double>(now_ns);
  view.eta_ns = std::max(
      view.eta_ns, view.base_latency_ns + wait_ns + static_cast<double>(size_bytes) / view.rate);
  const uint64_t due_ns = static_cast<uint64_t>(lane.pace_ns) + 1;
  view.room_ns = view.room_ns == kNever ? due_ns : std::max(view.room_ns, due_ns);
  view.has_room = false;
}

// Marks the rails that have no room for the current slice.
void Scheduler::note_full_rails() {
  for (const WayView& view : views_)
    if (view.is_usable && !view.has_room) rails_[view.rail].is_full = true;
}

std::vector<WayExplained> Scheduler::explain(uint32_t ways, uint64_t size_bytes, Urgency urgency,
                                             uint64_t now_ns) const {
  std::vector<WayView> views;
  const uint64_t slice = std::min(size_bytes, slice_bytes(size_bytes, 1, rules_of(ways)));
  find_ways(ways, slice, urgency, now_ns, std::nullopt, views);
  const std::optional<size_t> chosen = spray({0, slice, 0, urgency, size_bytes}, views);
  std::vector<WayExplained> explained;
  for (size_t i = 0; i < views.size(); ++i)
    explained.push_back(
        {{views[i].path, views[i].tier, ways_[ways].all[i].rank},
         paths_[views[i].path].health.state(),
         !views[i].is_usable && !ways_[ways].all[i].is_closed && paths_[views[i].path].is_usable(),
         views[i].is_usable && views[i].has_room,
         views[i].eta_ns / 1000,
         views[i].rate,
         chosen == i});
  return explained;
}

}  // namespace braid::transfer
