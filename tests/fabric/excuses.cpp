// World: whether what has failed had to. Each end that is not a success needs a cause that the run
// has brought about: a fault that touches those two processes at that time (faults.h), a deadline
// that has passed, or a revocation.
#include <algorithm>
#include <string>
#include <utility>

#include "fabric/world_parts.h"

namespace braid::fabric::test {

World::Process& World::process_of(uint64_t engine) const {
  for (const auto& process : processes_)
    if (process->engine_number == engine) return *process;
  throw Bug("a peer is none of the processes");
}

/// Whether one of them is gone, or has given the other up.
bool World::are_parted(const Process& a, const Process& b) const {
  return !a.is_alive || !b.is_alive || a.has_lost.contains(&b) || b.has_lost.contains(&a);
}

bool World::may_be_swallowed(const Process& a, const Process& b) const {
  return faults_.swallows(&a, &b, std::nullopt, now_ns());
}

/// The next message after one that was swallowed came before the silence was too long, and the peer
/// was given up as long after that. With several rails it is waited for while one of them stands
/// still.
bool World::may_have_lost_a_message(const Process& a, const Process& b) const {
  const HeartbeatOptions& beats = engine_options_.heartbeat;
  if (rails_ > 1) return may_be_swallowed(a, b);
  const uint64_t ago_ns =
      2 * (beats.limit_ns + beats.interval_ns) + faults_.delay_ns(&a, &b, now_ns());
  return faults_.swallows(&a, &b, std::nullopt, now_ns(), now_ns() - std::min(now_ns(), ago_ns));
}

/// A newcomer that answers so late is forgotten.
bool World::may_have_missed_the_handshake(const Process& a, const Process& b) const {
  constexpr uint64_t kTravelNs = 500'000;
  return faults_.delay_ns(&a, &b, now_ns()) + kTravelNs >= engine_options_.handshake_ns;
}

/// Who was greeted beats once the greeting was answered. A rail that has held up the answer takes
/// the first beat too.
bool World::may_have_begun_to_beat_late(const Process& a, const Process& b) const {
  const HeartbeatOptions& beats = engine_options_.heartbeat;
  return faults_.delay_ns(&a, &b, now_ns()) + 2 * beats.interval_ns >= beats.limit_ns;
}

/// A greeting was lost, or late: one of them may believe that they are connected.
bool World::may_be_half_met(const Process& a, const Process& b) const {
  return may_be_swallowed(a, b) || may_have_missed_the_handshake(a, b) ||
         faults_.fails_on_all(&a, &b, rails_, 0, now_ns());
}

bool World::are_half_met(const Process& a, const Process& b) const {
  return !(knows(a, b) && knows(b, a)) && may_be_half_met(a, b);
}

void World::note_losses(Process& process) {
  const uint64_t losses = process.engine->statistics().peers_failed;
  if (std::exchange(process.losses, losses) == losses) return;
  while (const std::optional<uint64_t> peer = process.engine->next_failed()) {
    for (const PeerStatistics& row : process.engine->peers())
      if (row.peer == *peer) {
        Process& other = process_of(row.engine);
        const PeerFailure why = process.engine->peer_failure(*peer).value();
        say("process " + std::to_string(process.host) + " loses process " +
            std::to_string(other.host) + ", failure " + std::to_string(static_cast<int>(why)));
        if (!may_lose(process, other, why))
          throw Bug("a peer was given up without need, failure " +
                    std::to_string(static_cast<int>(why)));
        process.has_lost.insert(&other);
      }
  }
}

bool World::may_lose(const Process& process, const Process& other, PeerFailure why) const {
  const HeartbeatOptions& beats = engine_options_.heartbeat;
  switch (why) {
    case PeerFailure::kNoAnswer:
      return may_be_half_met(process, other) || are_parted(process, other);
    case PeerFailure::kNetwork:
      return faults_.fails_on_all(&process, &other, rails_, 0, now_ns()) ||
             may_have_lost_a_message(process, other);
    case PeerFailure::kSilent:  // who has given us up does not beat
      return beats.interval_ns > 0 &&
             (other.has_lost.contains(&process) || may_have_missed_the_handshake(process, other) ||
              may_have_begun_to_beat_late(process, other) ||
              faults_.silences(&other, &process, rails_, beats.limit_ns, now_ns()));
    case PeerFailure::kLeft: return may_be_half_met(process, other);
    case PeerFailure::kGaveUs: return other.has_lost.contains(&process);
    // It had to forget this one, which had said hello, and has connected anew.
    case PeerFailure::kReplaced: return may_be_half_met(process, other);
    default: return false;
  }
}

/// The ticket of a write has failed for this cause, or of a part of a scatter for some cause.
bool World::may_fail(const Job& job, Failure why) const {
  const Process& owner = *job.owner;
  const Process& writer = *job.writer;
  switch (why) {
    case Failure::kDeadline:
      return now_ns() >= job.ticket_deadline_ns &&
             (job.is_ticket_hasty || may_be_swallowed(writer, owner));
    case Failure::kRevoked: return job.has_given_up;
    case Failure::kDisconnected: return are_parted(writer, owner);
    case Failure::kCancelled: return job.was_cancelled;
    case Failure::kNetwork: {
      const bool is_closed = job.has_given_up && now_ns() >= job.fence_deadline_ns;
      if (kills_a_rail_) return is_closed || job.may_meet_the_killed_rail;
      return faults_.fails(&writer, &owner, job.begun_ns, now_ns()) || is_closed ||
             are_parted(writer, owner);
    }
    default: return false;
  }
}

bool World::may_part_fail(const Job& job) const {
  return job.was_cancelled || may_fail(job, Failure::kDeadline) ||
         may_fail(job, Failure::kRevoked) || may_fail(job, Failure::kDisconnected) ||
         may_fail(job, Failure::kNetwork);
}

/// Its descriptor. The owner revokes one without bytes at once.
bool World::may_be_refused(const Job& job) const {
  return job.has_given_up || job.expected == 0 || are_parted(*job.writer, *job.owner);
}

/// The writer has confirmed that it writes no more: the owner's fence came before its limit.
bool World::was_confirmed(const Job& job) const {
  return job.is_over && job.has_given_up && job.fenced_ns < job.fence_deadline_ns &&
         !are_parted(*job.writer, *job.owner);
}

/// The owner or the writer has not seen it succeed, and no ticket has said why.
bool World::may_be_missed(const Job& job) const {
  const bool has_passed = job.has_given_up && job.is_hasty;
  return has_passed || job.was_cancelled || are_parted(*job.owner, *job.writer) ||
         are_half_met(*job.owner, *job.writer) || may_be_swallowed(*job.owner, *job.writer);
}

/// The owner can never be sure that nothing lands there any more.
bool World::may_stay_quarantined(const Job& job) const {
  const Process& owner = *job.owner;
  if (network_options_.removal_fences) return false;
  // The connection is over. A writer that has crashed was disconnected.
  const Result<PeerState> state = owner.engine->peer_state(job.granted_to);
  const bool is_gone = !job.writer->is_alive || !state.ok() || state.value() == PeerState::kFailed;
  if (is_gone && network_options_.closing_fences) return false;
  // It failed, and its ticket is another part's to end.
  const bool may_have_failed = job.writer->is_alive && !job.writer_is_over && may_stay_open(job) &&
                               faults_.fails(&owner, job.writer, 0, now_ns());
  return job.has_failed_in_network || may_have_failed || are_parted(owner, *job.writer) ||
         are_half_met(owner, *job.writer) || may_be_swallowed(owner, *job.writer);
}

/// The network holds its source for ever, or that of another part of its scatter. What was under
/// way to a process that has crashed, and so was disconnected, is abandoned.
bool World::may_stay_open(const Job& job) const {
  return std::any_of(jobs_.begin(), jobs_.end(), [&](const auto& part) {
    const bool is_abandoned = network_options_.breaks_connections && !part->owner->is_alive;
    return part->writer == job.writer && part->ticket == job.ticket && !is_abandoned &&
           may_be_swallowed(*part->owner, *part->writer);
  });
}

bool World::may_be_missing(const Club& club, size_t index, size_t other) const {
  const Club::Member& member = club.members[index];
  const Club::Member& named = club.members[other];
  const Process& a = *member.process;
  const Process& b = *named.process;
  const bool has_come = named.entered >= member.entered;
  const bool has_passed = now_ns() >= member.deadline_ns;
  if (has_passed && (club.is_hasty || !has_come)) return true;
  if (are_parted(a, b) || may_be_swallowed(a, b)) return true;
  if (kills_a_rail_) return club.may_fail;
  const uint64_t from_ns =
      has_come ? std::min(member.entered_ns, named.entered_ns) : member.entered_ns;
  return faults_.fails(&a, &b, from_ns, now_ns());
}

}  // namespace braid::fabric::test
