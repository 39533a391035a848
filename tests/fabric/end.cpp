// World: what must hold when all is over.
#include <string>

#include "fabric/world_parts.h"

namespace braid::fabric::test {

/// Whether it is connected to the other, as far as it knows.
bool World::knows(const Process& process, const Process& other) {
  if (!process.is_alive || !other.is_alive) return false;
  const auto peer = process.engine->find_peer(other.engine_number);
  const Result<PeerState> state =
      peer ? process.engine->peer_state(*peer) : Result<PeerState>(PeerState::kFailed);
  return state.ok() && state.value() == PeerState::kConnected;
}

namespace {

constexpr double kLookEveryUs = 500;
constexpr double kAllHasBegunUs = 6100;  // the last fault is over, the last club is founded
constexpr uint64_t kFullRunEvery = 32;

}  // namespace

/// Once nothing is under way, nothing comes but beats. A run ends when it has had time to notice
/// who does not beat; some go on to the end nevertheless.
void World::look_whether_over() {
  if (seed_ % kFullRunEvery == 0) return;
  const HeartbeatOptions& beats = engine_options_.heartbeat;
  const uint64_t to_notice_ns = 1'000'000 + (beats.interval_ns > 0 ? beats.limit_ns : 0);
  simulation_.after_us(kLookEveryUs, [this, to_notice_ns] {
    if (!is_settled()) settled_since_ns_ = now_ns();
    is_over_ = now_ns() > settled_since_ns_ + to_notice_ns;
    look_whether_over();
  });
}

bool World::is_settled() const {
  if (simulation_.now() < simulation::from_us(kAllHasBegunUs)) return false;
  for (const auto& job : jobs_) {
    if (job->owner->is_alive && !job->is_over) return false;
    if (job->writer->is_alive && job->writer_has_begun && !job->writer_is_over) return false;
  }
  for (const auto& club : clubs_)
    for (const Club::Member& member : club->members)
      if (member.process->is_alive && (member.ticket != 0 || member.is_to_enter)) return false;
  return std::all_of(hosts_.begin(), hosts_.end(), [this](const Process* process) {
    return process->is_alive && is_settled(*process);
  });
}

/// It has begun all that it wanted to, and its rails are what they will be.
bool World::is_settled(const Process& process) const {
  if (process.jobs_to_begin > 0 || !process.to_scatter.empty() || !process.engine->is_idle())
    return false;
  for (const PeerStatistics& peer : process.engine->peers()) {
    const Result<PeerState> state = process.engine->peer_state(peer.peer);
    if (state.ok() && state.value() == PeerState::kConnecting) return false;
  }
  for (const RouteStatistics& route : process.engine->routes())
    if (route.state == RailState::kSuspect ||
        (route.state == RailState::kDown &&
         !is_killed(process, process_of(route.engine), route.rail)))
      return false;
  return true;
}

bool World::is_killed(const Process& process, const Process& other, size_t rail) const {
  return (&process == killed_ || &other == killed_) && rail == killed_rail_;
}

void World::check_end() const {
  for (const auto& process : processes_) process->memory.check_free_pages();
  for (const Process* process : hosts_)
    if (!has_faults_ && process->jobs_to_begin > 0) throw Bug("a hang: a process never began");
  check_connections();
  check_clubs();
  for (const auto& job : jobs_) check_over(*job);
  check_rails();
  for (const auto& process : processes_)
    if (process->is_alive) check_statistics(process->engine->statistics());
}

void World::check_over(const Job& job) const {
  const std::string name = "write " + std::to_string(job.number);
  if (job.owner->is_alive && !job.is_over && !(job.was_quarantined && may_stay_quarantined(job)))
    throw Bug("a hang: the owner of " + name + " still waits");
  const bool is_open = job.writer->is_alive && job.writer_has_begun && !job.writer_is_over;
  if (is_open && !may_stay_open(job))
    throw Bug("a hang: the ticket of " + name + " is pending for ever");
  if (is_open && job.writer->engine->state(*job.ticket).value() != TicketState::kQuarantined)
    throw Bug("a hang: the ticket of " + name + " never met its deadline");
  const bool has_failed = job.writer_is_over && !job.is_done;
  if (!has_succeeded(job) && !has_failed && !is_open && !may_be_missed(job))
    throw Bug(name + " has not succeeded, although nothing was lost");
}

bool World::has_succeeded(const Job& job) {
  return job.has_arrived && (job.is_done || job.expected == 0);
}

/// Of those that have tried, each pair is connected, on both sides.
void World::check_connections() const {
  for (const Process* process : hosts_)
    for (const Process* other : hosts_) {
      const bool has_tried =
          process->has_called.contains(other) || other->has_called.contains(process);
      if (process == other || !has_tried || knows(*process, *other)) continue;
      if (!are_parted(*process, *other) && !may_be_half_met(*process, *other))
        throw Bug("two processes are not connected, although nothing was lost");
    }
}

/// Rails that were mended are in use again, and one that is broken for good is not.
void World::check_rails() const {
  for (const Process* process : hosts_)
    for (const Process* other : hosts_) {
      if (!knows(*process, *other) || !knows(*other, *process)) continue;
      const auto peer = process->engine->find_peer(other->engine_number);
      for (const RouteStatistics& route : process->engine->routes())
        if (route.peer == *peer) check_route(*process, *other, route);
    }
}

void World::check_route(const Process& process, const Process& other,
                        const RouteStatistics& route) const {
  const std::string name = "rail " + std::to_string(route.rail);
  if (!is_killed(process, other, route.rail)) {
    // Without beats nobody says again that a rail is restored.
    const bool has_beats = engine_options_.heartbeat.interval_ns > 0;
    const bool may_be_retired = route.state == RailState::kRetired && !has_beats;
    const std::optional<size_t> swallowed_by =
        may_be_retired ? std::nullopt : std::optional(route.rail);
    const bool may_wait = faults_.swallows(&process, &other, swallowed_by, now_ns());
    if (!may_wait && route.state != RailState::kUp) throw Bug(name + " is well, and not in use");
    return;
  }
  const auto before = failures_before_.find({process.host, route.peer, route.rail});
  const bool has_failed = route.failures > (before == failures_before_.end() ? 0 : before->second);
  if (has_failed && route.state != RailState::kDown)
    throw Bug(name + " has failed for good, and is not down");
}

void World::check_statistics(const EngineStatistics& statistics) const {
  if (statistics.malformed + statistics.over_credit + statistics.unauthenticated > 0)
    throw Bug("a message was dropped");
  if (!has_faults_ && statistics.misdirected + statistics.replayed > 0)
    throw Bug("a message went astray, although nothing was wrong");
}

}  // namespace braid::fabric::test
