// World: the process that writes.
#include <algorithm>
#include <string>
#include <utility>

#include "fabric/world_parts.h"

namespace braid::fabric::test {

void World::take_orders(Process& writer) {
  if (!writer.has_messages) return;
  writer.has_messages = false;
  while (std::optional<Received> order = writer.engine->receive()) {
    uint32_t number = 0;
    const size_t end = order->payload.size() - sizeof number;
    for (size_t i = 0; i < sizeof number; ++i)
      number |= static_cast<uint32_t>(order->payload[end + i]) << 8 * i;
    const Result<Descriptor> descriptor = decode_descriptor(Bytes(order->payload).first(end));
    if (number == 0 || number > jobs_.size() || !descriptor.ok()) throw Bug("a message is altered");
    Job& job = *jobs_[number - 1];
    if (job.writer != &writer || job.was_ordered)
      throw Bug("an order came twice, or to another process");
    job.was_ordered = true;
    if (job.kind == Kind::kSingle && random_.chance(0.4))
      writer.to_scatter.emplace_back(&job, descriptor.value());
    else
      write(writer, job, descriptor.value());
  }
}

void World::prepare_source(Process& writer, Job& job) {
  job.source_offset = job.number * kPagesOfAWriteMax * kPageBytes % writer.sources.size();
  job.for_each_byte(
      [&](size_t place, size_t source) { writer.sources[source] = byte_of(job.number, place); });
}

/// Orders of several owners, in one scatter.
void World::scatter(Process& writer) {
  if (writer.to_scatter.empty()) return;
  wake_at(writer, now_ns() + 5'000);
  if (random_.chance(0.7)) return;  // others may come
  Engine& engine = *writer.engine;
  std::vector<Job*> jobs;
  std::vector<GroupMember> members;
  std::vector<Part> parts;
  for (const auto& [job, descriptor] : std::exchange(writer.to_scatter, {})) {
    const auto peer = engine.find_peer(descriptor.owner);
    const bool is_other = std::none_of(members.begin(), members.end(), [&](const auto& member) {
      return peer && member.peer == *peer;
    });
    if (!is_other) {
      writer.to_scatter.emplace_back(job, descriptor);
      continue;
    }
    const Result<uint64_t> target = engine.open_target(descriptor);
    if (!target.ok() && may_be_refused(*job)) continue;
    if (!target.ok()) throw Bug("cannot open a descriptor: " + target.status().message());
    if (was_confirmed(*job)) throw Bug("a descriptor was opened whose revocation was confirmed");
    prepare_source(writer, *job);
    job->target = target.value();
    job->part_peer = *peer;
    jobs.push_back(job);
    members.push_back({*peer, target.value(), 0, 0});
    parts.push_back({{job->source_offset, 0, job->size_bytes}, job->immediate});
  }
  if (jobs.empty()) return;
  const bool is_hasty = has_faults_ && random_.chance(0.3);
  const uint64_t deadline_ns =
      now_ns() + static_cast<uint64_t>(1000 * (is_hasty ? us(1, 100) : 10'000));
  const Result<uint64_t> group = engine.add_group(members);
  if (!group.ok()) throw Bug("cannot make a group: " + group.status().message());
  const Result<uint64_t> ticket =
      engine.scatter(writer.source_region, group.value(), parts, deadline_ns);
  if (!ticket.ok()) throw Bug("cannot scatter: " + ticket.status().message());
  if (!engine.remove_group(group.value()).ok()) throw Bug("cannot remove a group");
  ++counts_.scatters;
  for (Job* job : jobs) {
    job->is_ticket_hasty = is_hasty;
    job->ticket_deadline_ns = deadline_ns;
    begun(writer, *job, ticket.value());
  }
}

void World::begun(Process& writer, Job& job, uint64_t ticket) {
  if (kills_a_rail_) {
    job.may_meet_the_killed_rail = !knows_of_killed_rail(writer, *job.owner);
    job.makes_a_detour =
        !job.may_meet_the_killed_rail && (&writer == killed_ || job.owner == killed_);
  }
  job.ticket = ticket;
  job.begun_ns = now_ns();
  job.writer_has_begun = true;
  if (!random_.chance(0.5)) return;
  Asked asked;
  asked.job = &job;
  job.end_was_asked = true;
  ask_ticket(writer, ticket, asked);
}

void World::write(Process& writer, Job& job, const Descriptor& descriptor) {
  const bool is_hasty = has_faults_ && random_.chance(0.3);
  const uint64_t deadline_ns =
      now_ns() + static_cast<uint64_t>(1000 * (is_hasty ? us(1, 100) : 10'000));
  job.is_ticket_hasty = is_hasty;
  job.ticket_deadline_ns = deadline_ns;
  Engine& engine = *writer.engine;
  Result<uint64_t> ticket = Status::error("");
  if (job.kind == Kind::kNotify) {
    if (are_parted(writer, *job.owner)) return;
    ticket = engine.notify(*engine.find_peer(job.owner->engine_number), job.immediate, deadline_ns);
  } else {
    const Result<uint64_t> target = engine.open_target(descriptor);
    if (!target.ok() && may_be_refused(job)) return;
    if (!target.ok()) throw Bug("cannot open a descriptor: " + target.status().message());
    if (was_confirmed(job)) throw Bug("a descriptor was opened whose revocation was confirmed");
    job.target = target.value();
    prepare_source(writer, job);
    if (job.kind == Kind::kSingle) {
      ticket = engine.write(writer.source_region, *job.target,
                            {job.source_offset, 0, job.size_bytes}, job.immediate, deadline_ns);
    } else {
      Pages source{{}, kPageBytes, job.source_offset};
      for (uint32_t i = 0; i < job.pages.size(); ++i) source.indices.push_back(i);
      ticket = engine.write_pages(writer.source_region, *job.target, job.size_bytes, source,
                                  {job.pages, kPageBytes, 0}, job.immediate, deadline_ns);
    }
  }
  if (!ticket.ok()) throw Bug("cannot write: " + ticket.status().message());
  begun(writer, job, ticket.value());
}

/// Of a scatter that has failed, those parts are done that it does not name.
bool World::is_part_done(const Process& writer, const Job& job, TicketState state) const {
  if (state == TicketState::kDone || job.part_peer == 0) return state == TicketState::kDone;
  const std::vector<uint64_t> missing = writer.engine->missing(*job.ticket).value();
  return std::find(missing.begin(), missing.end(), job.part_peer) == missing.end();
}

/// Nothing more of it is posted. What is under way, in all its parts, may end well.
void World::cancel(Process& writer, uint64_t ticket) {
  for (const auto& job : jobs_)
    if (job->writer == &writer && job->ticket == ticket) job->was_cancelled = true;
  say("process " + std::to_string(writer.host) + " cancels a ticket");
  if (!writer.engine->cancel(ticket).ok()) throw Bug("cannot cancel a ticket");
}

/// As soon as a ticket says that the source is free, the source is overwritten.
void World::look_after_tickets(Process& writer) {
  for (const auto& each : jobs_) {
    Job& job = *each;
    if (job.writer != &writer || !job.writer_has_begun || job.writer_is_over) continue;
    if (cancels_ && random_.chance(0.03)) cancel(writer, *job.ticket);
    const TicketState state = writer.engine->state(*job.ticket).value();
    if (state == TicketState::kPending && now_ns() >= job.ticket_deadline_ns)
      throw Bug("the deadline of write " + std::to_string(job.number) + " is not met");
    if (state == TicketState::kPending) continue;
    if (job.end_was_asked && !job.end_was_told) take_events(writer);
    if (state == TicketState::kQuarantined) {
      if (job.end_was_asked && !job.quarantine_was_told)
        throw Bug("a ticket that is quarantined was not told");
      continue;
    }
    say("the ticket of write " + std::to_string(job.number) +
        " ends: " + (state == TicketState::kDone ? "done" : "failed"));
    if (job.end_was_asked && !job.end_was_told) throw Bug("the end of a ticket was not told");
    job.writer_is_over = true;
    job.is_done = is_part_done(writer, job, state);
    const Failure why = writer.engine->failure(*job.ticket);
    if (!job.is_done && !(job.part_peer == 0 ? may_fail(job, why) : may_part_fail(job)))
      throw Bug("write " + std::to_string(job.number) + " has failed without need, failure " +
                std::to_string(static_cast<int>(why)));
    job.has_failed_in_network = !job.is_done && may_fail(job, Failure::kNetwork);
    const bool is_owners_again = job.has_arrived || job.is_over;
    if (job.is_done && job.owner->is_alive && !is_owners_again) check_whole(job, "the writer");
    job.for_each_byte([&](size_t, size_t source) { writer.sources[source] = std::byte{0xdd}; });
    const bool is_last = std::none_of(jobs_.begin(), jobs_.end(), [&](const auto& other) {
      return other->writer == &writer && other->ticket == job.ticket && !other->writer_is_over;
    });
    if (is_last) writer.engine->forget(*job.ticket);
  }
}

}  // namespace braid::fabric::test
