// World: what processes ask to be told. A request has one event, not before it has happened; an
// order is taken only when a message was told, and a barrier is looked at only when its end was.
#include <string>

#include "fabric/world_parts.h"

namespace braid::fabric::test {
namespace {

constexpr uint64_t kPeers = 1;  // requests that last
constexpr uint64_t kMessages = 2;

}  // namespace

void World::watch_all(Process& process) {
  process.engine->completions().watch_peers(kPeers);
  process.engine->watch_messages(kMessages);
}

uint64_t World::ask(Process& process, const Asked& asked) {
  const uint64_t request = kMessages + ++process.requests;
  process.asked.emplace(request, asked);
  return request;
}

void World::ask_ticket(Process& process, uint64_t ticket, const Asked& asked) {
  Asked whole = asked;
  whole.ticket = ticket;
  if (!process.engine->when_ended(ticket, ask(process, whole)).ok())
    throw Bug("cannot ask for the end of a ticket");
}

/// Of the first immediate, sometimes, and of the last.
void World::ask_counts(Job& job) {
  std::vector<uint64_t> counts = {job.expected};
  if (job.expected > 1 && random_.chance(0.5)) counts.insert(counts.begin(), 1);
  for (const uint64_t count : counts) {
    Asked asked;
    asked.job = &job;
    asked.count = count;
    if (!job.owner->engine->when_counted(job.immediate, count, ask(*job.owner, asked)).ok())
      throw Bug("cannot ask for a count");
  }
}

void World::take_events(Process& process) {
  note_losses(process);
  while (const std::optional<Happening> event = process.engine->completions().next()) {
    if (event->request == kPeers) {
      peer_told(process, *event);
    } else if (event->request == kMessages) {
      process.has_messages = true;
    } else {
      const auto found = process.asked.find(event->request);
      if (found == process.asked.end()) throw Bug("an event came twice, or nobody asked for it");
      const Asked asked = found->second;
      process.asked.erase(found);
      if (event->about == About::kTicket)
        ticket_told(process, asked, *event);
      else
        count_told(process, asked, *event);
    }
  }
}

void World::peer_told(Process& process, const Happening& event) {
  const auto state = static_cast<PeerState>(event.value);
  const auto [known, is_new] = process.peers_told.emplace(event.id, state);
  const bool is_wrong = is_new ? state != PeerState::kConnected
                               : state != PeerState::kFailed || known->second == state;
  if (is_wrong) throw Bug("a peer was told to be what it was not");
  known->second = state;
}

void World::ticket_told(Process& process, const Asked& asked, const Happening& event) {
  if (event.is_cancelled) throw Bug("the end of a ticket was cancelled that nobody forgot");
  const TicketState state = process.engine->state(asked.ticket).value();
  if (state == TicketState::kPending) throw Bug("a ticket was told to have ended that has not");
  const auto told = static_cast<TicketState>(event.value);
  if (told == TicketState::kQuarantined) {
    if (asked.job != nullptr) asked.job->quarantine_was_told = true;
    return ask_ticket(process, asked.ticket, asked);
  }
  if (told != state) throw Bug("a ticket was told to have ended otherwise");
  if (asked.club != nullptr)
    barrier_ended(*asked.club, asked.member);
  else
    asked.job->end_was_told = true;
}

void World::count_told(Process& process, const Asked& asked, const Happening& event) {
  Job& job = *asked.job;
  const std::string name = " of write " + std::to_string(job.number);
  if (event.is_cancelled && !job.is_released) throw Bug("the count" + name + " was cancelled");
  if (job.is_released) return;
  if (process.engine->counters().count(job.immediate) < asked.count)
    throw Bug("the count" + name + " was told early");
  if (asked.count < job.count_told) throw Bug("counts" + name + " were told in another order");
  job.count_told = asked.count;
}

void World::check_told(Process& process) {
  take_events(process);
  for (const auto& [request, asked] : process.asked) {
    if (asked.ticket != 0) {
      const Result<TicketState> state = process.engine->state(asked.ticket);
      if (!state.ok() || state.value() == TicketState::kDone ||
          state.value() == TicketState::kFailed)
        throw Bug("a hang: the end of a ticket was never told");
    } else {
      const ImmCounters& counters = process.engine->counters();
      if (!counters.is_claimed(asked.job->immediate) ||
          counters.count(asked.job->immediate) >= asked.count)
        throw Bug("a hang: a count was never told");
    }
  }
}

}  // namespace braid::fabric::test
