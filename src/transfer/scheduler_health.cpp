// Scheduler: overdue slices, paths in trouble, probes and fences.
#include <algorithm>
#include <utility>

#include "transfer/scheduler_state.h"

namespace braid::transfer {
namespace {

// How long a path that works may go without a slice: at least this time, and this many base
// latencies.
constexpr uint64_t kOverlookedNs = 50'000'000;
constexpr double kOverlookedLatencies = 4;

}  // namespace

bool Scheduler::is_wanted(const Path& path) const {
  const auto peer = peers_.find(path.spec.peer);
  return peer != peers_.end() && !peer->second.requests.empty();
}

void Scheduler::state_changed(uint32_t index, PathState from, uint64_t now_ns) {
  has_changed_ = true;
  const Path& path = paths_[index];
  const PathState to = path.health.state();
  events_.push_back(PathChanged{index, from, to});
  const auto works = [](PathState state) {
    return state == PathState::kUp || state == PathState::kRejoining;
  };
  set_path_timer(index);
  if (works(from) == works(to)) return;
  if (works(to)) reachable_again(index);
  if (path.is_retired) return;
  for (const uint32_t rail : {path.spec.local_rail, path.spec.remote_rail}) {
    if (rail == kNoRail) continue;
    NicRecord& record = rails_[rail].record;
    if (works(to)) {
      --record.pairs_in_trouble;
      continue;
    }
    if (record.pairs_in_trouble++ == 0) record.trouble_since_ns = now_ns;
    judge_nic(rail, now_ns);
  }
}

// If a NIC is at fault, all its pairs become suspect: each is probed before it is used again.
void Scheduler::judge_nic(uint32_t index, uint64_t now_ns) {
  Rail& rail = rails_[index];
  // Each pair that becomes suspect leads here again.
  if (rail.is_judged || !is_nic_at_fault(rail.record)) return;
  rail.is_judged = true;
  for (const uint32_t path : rail.paths)
    if (paths_[path].health.is_usable())
      change(path, now_ns, [&](Health& health) { health.overdue(now_ns, jitter()); });
  rail.is_judged = false;
}

void Scheduler::path_failed(uint32_t path, uint64_t now_ns) {
  forget_lost_probe(paths_[path]);
  change(path, now_ns, [&](Health& health) { health.go_down(now_ns, jitter()); });
  reissue_all(path);
}

void Scheduler::path_may_work(uint32_t index, uint64_t now_ns) {
  Path& path = paths_[index];
  change(index, now_ns, [&](Health& health) {
    if (health.probe_now(now_ns)) forget_probes(path);
  });
  set_path_timer(index);
}

void Scheduler::spare(uint32_t path, uint64_t now_ns) { paths_[path].spared_ns = now_ns; }

void Scheduler::retire_path(uint32_t index) {
  Path& path = paths_[index];
  if (path.is_retired) return;
  has_changed_ = true;
  path.is_retired = true;
  forget_probes(path);
  leave_rails(index);
  reissue_all(index);
}

// The path's trouble does not count against its NICs any more.
void Scheduler::leave_rails(uint32_t index) {
  const Path& path = paths_[index];
  for (const uint32_t rail : {path.spec.local_rail, path.spec.remote_rail}) {
    if (rail == kNoRail) continue;
    std::erase(rails_[rail].paths, index);
    if (!path.health.is_usable()) --rails_[rail].record.pairs_in_trouble;
  }
}

// ---- Overdue postings ----

// When the first open posting of the path is overdue, counted from when it was posted, another one
// ended there, or the path was spared.
uint64_t Scheduler::overdue_at(const Path& path) const {
  if (!options_.heals) return kNever;
  if (path.open.empty() || path.spec.is_certain) return kNever;
  const Open& first = *postings_.find(path.open.front());
  const uint64_t since_ns = std::max({first.posted_ns, path.lane.rate.ended_ns(), path.spared_ns});
  return since_ns + overdue_ns(first.eta_ns, options_.retry);
}

// How long the posting's path may stand still at least: not at all if the slice could take another
// way of the same transport now, longer if it would have to change to another transport.
uint64_t Scheduler::patience_ns(const Open& open) const {
  const Request& request = *requests_.find(slices_.find(open.slice)->request);
  const std::vector<Way>& ways = ways_[request.spec.ways].all;
  const auto own =
      std::find_if(ways.begin(), ways.end(), [&](const Way& way) { return way.path == open.path; });
  uint64_t patience_ns = options_.retry.last_overdue_ns;
  for (const Way& way : ways) {
    if (way.path == open.path || way.is_closed || !paths_[way.path].is_usable()) continue;
    if (way.rank <= own->rank) return 0;
    patience_ns = options_.retry.standby_overdue_ns;
  }
  return patience_ns;
}

// If a path is the last usable one for all its postings, the scheduler waits for it much longer,
// since leaving it would only cost time.
void Scheduler::first_is_overdue(uint32_t index, uint64_t now_ns) {
  Path& path = paths_[index];
  const Open& first = *postings_.find(path.open.front());
  const uint64_t since_ns = std::max(first.posted_ns, path.lane.rate.ended_ns());
  const bool is_waited_for = std::all_of(path.open.begin(), path.open.end(), [&](uint64_t id) {
    const Open* open = postings_.find(id);
    return open == nullptr || open->is_late || now_ns - since_ns < patience_ns(*open);
  });
  if (is_waited_for) {
    path.spared_ns = now_ns;
    return;
  }
  // The rate of a rail that is only slow is corrected, so that its slices are not overdue again and
  // again.
  path.lane.rate.overdue(first.size_bytes, now_ns - since_ns);
  change(index, now_ns, [&](Health& health) { health.overdue(now_ns, jitter()); });
  stop_what_is_overdue_for_too_long(path, now_ns);
  reissue_all(index);
}

// An overdue posting is no failure: on a busy host every way may be late more often than a slice
// may fail. But a slice that has been overdue for too long fails its request, so that none is
// reissued for ever.
void Scheduler::stop_what_is_overdue_for_too_long(const Path& path, uint64_t now_ns) {
  for (const uint64_t id : path.open) {
    const Open* open = postings_.find(id);
    if (open == nullptr || open->is_late) continue;
    Slice& slice = *slices_.find(open->slice);
    if (slice.is_delivered) continue;
    if (slice.overdue_ns == 0)
      slice.overdue_ns = now_ns;
    else if (now_ns - slice.overdue_ns >= options_.retry.overdue_max_ns)
      stop(slice.request, Outcome::kFailed);
  }
}

void Scheduler::reissue_all(uint32_t index) {
  const std::deque<uint64_t> open = paths_[index].open;
  std::vector<uint64_t> slots;
  for (const uint64_t id : open) {
    const Open* posting = postings_.find(id);
    if (posting == nullptr || posting->is_late) continue;
    slots.push_back(slices_.find(posting->slice)->request);
    ++paths_[index].reissued_slices;
    reissue(id);
  }
  for (const uint64_t slot : slots) end_if_final(slot);
}

// Queues the slice to be posted again; the posting itself stays open.
void Scheduler::reissue(uint64_t id) {
  has_changed_ = true;
  Open& open = *postings_.find(id);
  vacate(open);
  open.is_late = true;
  Path& path = paths_[open.path];
  open.late_index = path.late.size();
  path.late.push_back(id);
  leave_front(path);
  slices_.find(open.slice)->failed_path = open.path;
  requeue(open.slice);
}

// ---- Fences ----

void Scheduler::want_fence(uint32_t path) {
  if (paths_[path].is_fencing) return;
  has_changed_ = true;
  paths_[path].is_fencing = true;
  events_.push_back(FenceWanted{path});
}

void Scheduler::fenced(uint32_t index, uint64_t now_ns) {
  has_changed_ = true;
  Path& path = paths_[index];
  std::vector<uint64_t> open = path.late;
  open.insert(open.end(), path.open.begin(), path.open.end());
  std::vector<uint64_t> slots;
  for (const uint64_t id : open) {
    const Open* posting = postings_.find(id);
    if (posting == nullptr) continue;
    slots.push_back(slices_.find(posting->slice)->request);
    if (!posting->is_late) requeue(posting->slice);
    close(id);
  }
  path.is_fencing = false;
  forget_lost_probe(path);
  if (path.is_measuring) forget_probe(path);
  change(index, now_ns, [&](Health& health) { health.go_down(now_ns, jitter()); });
  set_path_timer(index);
  for (const uint64_t slot : slots) end_if_final(slot);
}

// ---- Probes ----

std::optional<Probe> Scheduler::next_probe(uint64_t now_ns) {
  look(now_ns);
  while (!probes_due_.empty()) {
    const uint32_t index = probes_due_.front();
    probes_due_.pop_front();
    if (!paths_.contains(index)) continue;
    Path& path = paths_[index];
    path.is_probe_due = false;
    if (!wants_probe(path, now_ns)) continue;
    begin_probe(index, now_ns);
    return Probe{path.probe, index, options_.probe_bytes};
  }
  return std::nullopt;
}

bool Scheduler::wants_probe(const Path& path, uint64_t now_ns) const {
  return !path.is_retired && (path.health.wants_probe(now_ns, is_wanted(path)) ||
                              (path.probe == 0 && overlooked_at(path) <= now_ns));
}

// When to probe a path that works but gets no slice while its peer has requests: its latency may
// have been measured while a connection was new or the host busy, and only a probe would show that
// it is better.
uint64_t Scheduler::overlooked_at(const Path& path) const {
  const bool may_be = path.is_usable() && path.open_count == 0 && is_wanted(path);
  const bool can_be_measured = path.spec.is_measured_by_probes && !path.spec.is_certain;
  if (!may_be || !can_be_measured || !path.base.is_above_guess()) return kNever;
  return std::max(path.lane.rate.ended_ns(), path.measured_ns) +
         std::max(kOverlookedNs, static_cast<uint64_t>(kOverlookedLatencies * path.base.ns()));
}

// When a measuring probe is late. Health judges the other probes.
uint64_t Scheduler::probe_late_at(const Path& path) const {
  if (!path.is_measuring) return kNever;
  return postings_.find(path.probe)->posted_ns + options_.retry.last_overdue_ns;
}

// Forgets the probe: its end is ignored.
void Scheduler::forget_probe(Path& path) {
  postings_.erase(std::exchange(path.probe, 0));
  path.is_measuring = false;
}

void Scheduler::forget_lost_probe(Path& path) {
  postings_.erase(std::exchange(path.lost_probe, 0));
}

void Scheduler::forget_probes(Path& path) {
  forget_probe(path);
  forget_lost_probe(path);
}

// The probe that is out is late. On a busy host it may still be answered.
void Scheduler::lose_probe(Path& path) {
  forget_lost_probe(path);
  path.lost_probe = std::exchange(path.probe, 0);
}

void Scheduler::begin_probe(uint32_t index, uint64_t now_ns) {
  Path& path = paths_[index];
  forget_probe(path);
  path.probe = postings_.add({0, index, options_.probe_bytes, now_ns, 0, 0, {}, false, 0});
  path.is_measuring = path.is_usable();
  if (!path.is_measuring)
    change(index, now_ns, [&](Health& health) {
      health.probe_begun(now_ns, static_cast<uint64_t>(4 * path.base.ns()));
    });
  set_path_timer(index);
}

void Scheduler::probe_ended(uint64_t posting, const Open& open, bool ok, uint64_t now_ns) {
  const uint32_t index = open.path;
  const uint64_t took_ns = now_ns - open.posted_ns;
  Path& path = paths_[index];
  postings_.erase(posting);
  if (posting == path.lost_probe) {
    path.lost_probe = 0;
    if (ok) lost_probe_answered(index, now_ns);
    return;
  }
  path.probe = 0;
  // An answer to an older probe says nothing of trouble that comes later.
  if (ok) forget_lost_probe(path);
  if (ok && path.spec.is_measured_by_probes) path.base.add(static_cast<double>(took_ns), now_ns);
  if (std::exchange(path.is_measuring, false)) {
    path.measured_ns = now_ns;
  } else {
    change(index, now_ns, [&](Health& health) { health.probe_ended(ok, now_ns, jitter()); });
  }
  set_path_timer(index);
}

void Scheduler::lost_probe_answered(uint32_t index, uint64_t now_ns) {
  Path& path = paths_[index];
  change(index, now_ns, [&](Health& health) {
    if (health.answered_late()) forget_probe(path);
  });
  set_path_timer(index);
}

// ---- Time ----

void Scheduler::add_timer(uint64_t when_ns, TimerOf of, uint64_t id) {
  timers_.push_back({when_ns, of, id});
  std::push_heap(timers_.begin(), timers_.end(), Timer::is_later);
}

void Scheduler::set_path_timer(uint32_t index) {
  Path& path = paths_[index];
  uint64_t when_ns = std::min({overdue_at(path), path.health.next_ns(is_wanted(path)),
                               path.probe == 0 ? overlooked_at(path) : probe_late_at(path)});
  if (path.is_retired) when_ns = overdue_at(path);
  if (path.is_probe_due && !path.health.is_probe_out()) when_ns = overdue_at(path);
  if (path.no_room_until_ns > 0) when_ns = std::min(when_ns, path.no_room_until_ns);
  if (when_ns >= path.timer_ns) return;
  path.timer_ns = when_ns;
  add_timer(when_ns, TimerOf::kPath, index);
}

void Scheduler::path_is_due(uint32_t index, uint64_t now_ns) {
  Path& path = paths_[index];
  path.timer_ns = kNever;
  if (path.no_room_until_ns <= now_ns) path.no_room_until_ns = 0;
  change(index, now_ns, [&](Health& health) {
    if (health.check(now_ns, jitter())) lose_probe(path);
  });
  if (overdue_at(path) <= now_ns) first_is_overdue(index, now_ns);
  if (probe_late_at(path) <= now_ns) {
    forget_probe(path);
    change(index, now_ns, [&](Health& health) { health.overdue(now_ns, jitter()); });
  }
  if (!path.is_probe_due && wants_probe(path, now_ns)) {
    path.is_probe_due = true;
    probes_due_.push_back(index);
  }
  set_path_timer(index);
}

void Scheduler::look(uint64_t now_ns) {
  while (true) {
    const uint64_t timer_ns = timers_.empty() ? kNever : timers_.front().when_ns;
    const uint64_t deadline_ns = deadlines_.empty() ? kNever : deadlines_.begin()->first;
    if (std::min(timer_ns, deadline_ns) > now_ns) return;
    has_changed_ = true;
    if (deadline_ns < timer_ns) {
      request_is_due(deadlines_.begin()->second);
      continue;
    }
    const Timer timer = timers_.front();
    std::pop_heap(timers_.begin(), timers_.end(), Timer::is_later);
    timers_.pop_back();
    switch (timer.of) {
      case TimerOf::kPath:
        // The heap may still hold older timers of the same path, which are void.
        if (paths_.contains(timer.id) && paths_[timer.id].timer_ns == timer.when_ns)
          path_is_due(static_cast<uint32_t>(timer.id), now_ns);
        break;
      case TimerOf::kRoom: break;  // `next` is called then, and looks
      case TimerOf::kWays: look_whether_reachable(static_cast<uint32_t>(timer.id), now_ns); break;
    }
  }
}

uint64_t Scheduler::next_deadline_ns() const {
  if (!probes_due_.empty()) return 0;
  const uint64_t timer_ns = timers_.empty() ? kNever : timers_.front().when_ns;
  return deadlines_.empty() ? timer_ns : std::min(timer_ns, deadlines_.begin()->first);
}

}  // namespace braid::transfer
