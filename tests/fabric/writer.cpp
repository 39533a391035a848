// World: the process that writes.
#include <string>
#include <utility>

#include "fabric/world_parts.h"

namespace braid::fabric::test {

void World::take_orders(Process& writer) {
  while (std::optional<Received> order = writer.engine->receive()) {
    uint32_t number = 0;
    const size_t end = order->payload.size() - sizeof number;
    for (size_t i = 0; i < sizeof number; ++i)
      number |= static_cast<uint32_t>(order->payload[end + i]) << 8 * i;
    const Result<Descriptor> descriptor = decode_descriptor(Bytes(order->payload).first(end));
    if (number == 0 || number > jobs_.size() || !descriptor.ok()) throw Bug("a message is altered");
    Job& job = *jobs_[number - 1];
    if (job.writer != &writer || job.writer_has_begun)
      throw Bug("an order came twice, or to another process");
    write(writer, job, descriptor.value());
  }
}

void World::write(Process& writer, Job& job, const Descriptor& descriptor) {
  const bool is_hasty = has_faults_ && random_.chance(0.3);
  const uint64_t deadline_ns =
      now_ns() + static_cast<uint64_t>(1000 * (is_hasty ? us(1, 100) : 10'000));
  job.is_hasty = job.is_hasty || is_hasty;
  Engine& engine = *writer.engine;
  Result<uint64_t> ticket = Status::error("");
  if (job.kind == Kind::kNotify) {
    if (!job.owner->is_alive) return;
    const auto peer = engine.find_peer(job.owner->engine->address().engine);
    if (!peer || engine.peer_state(*peer).value() != PeerState::kConnected) return;
    ticket = engine.notify(*peer, job.immediate, deadline_ns);
  } else {
    const Result<uint64_t> target = engine.open_target(descriptor);
    if (!target.ok()) return;  // revoked in between
    job.target = target.value();
    job.source_offset = job.number * kPagesOfAWriteMax * kPageBytes % writer.sources.size();
    job.for_each_byte(
        [&](size_t place, size_t source) { writer.sources[source] = byte_of(job.number, place); });
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
  if (kills_a_rail_) {
    job.may_meet_the_killed_rail = !knows_of_killed_rail(writer, *job.owner);
    job.makes_a_detour =
        !job.may_meet_the_killed_rail && (&writer == killed_ || job.owner == killed_);
  }
  if (!ticket.ok()) throw Bug("cannot write: " + ticket.status().message());
  job.ticket = ticket.value();
  job.writer_has_begun = true;
}

/// As soon as a ticket says that the source is free, the source is overwritten.
void World::look_after_tickets(Process& writer) {
  for (const auto& each : jobs_) {
    Job& job = *each;
    if (job.writer != &writer || !job.writer_has_begun || job.writer_is_over) continue;
    const TicketState state = writer.engine->state(*job.ticket).value();
    if (state == TicketState::kPending || state == TicketState::kQuarantined) continue;
    say("the ticket of write " + std::to_string(job.number) +
        " ends: " + (state == TicketState::kDone ? "done" : "failed"));
    job.writer_is_over = true;
    job.is_done = state == TicketState::kDone;
    const bool is_owners_again = job.has_arrived || job.is_over;
    if (job.is_done && job.owner->is_alive && !is_owners_again) check_whole(job, "the writer");
    job.for_each_byte([&](size_t, size_t source) { writer.sources[source] = std::byte{0xdd}; });
    writer.engine->forget(*job.ticket);
  }
}

}  // namespace braid::fabric::test
