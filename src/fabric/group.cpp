#include "fabric/group.h"

#include <algorithm>
#include <utility>

namespace braid::fabric {

uint64_t GroupTickets::add(uint64_t group, std::vector<Part> parts) {
  const size_t count = parts.size();
  return kBit | tickets_.add({group, std::move(parts), count, false, false});
}

void GroupTickets::set_transfer(uint64_t ticket, size_t part, uint64_t transfer) {
  if (Ticket* known = tickets_.find(ticket & ~kBit)) known->parts[part].transfer = transfer;
}

void GroupTickets::forget(uint64_t ticket) {
  Ticket* known = tickets_.find(ticket & ~kBit);
  if (known == nullptr) return;
  known->is_forgotten = true;
  if (known->open_parts == 0) erase_forgotten(ticket);
}

void GroupTickets::erase_forgotten(uint64_t ticket) {
  if (find(ticket)->is_forgotten) tickets_.erase(ticket & ~kBit);
}

template <typename Change>
bool GroupTickets::change(uint64_t ticket, size_t part, const Change& change) {
  Ticket* known = tickets_.find(ticket & ~kBit);
  if (known == nullptr) return false;
  Part& changed = known->parts[part];
  if (changed.is_over()) return false;
  change(changed);
  if (!changed.is_over()) return false;
  return --known->open_parts == 0;
}

bool GroupTickets::transfer_ended(uint64_t ticket, size_t part, Failure failure) {
  return change(ticket, part, [&](Part& changed) {
    changed.has_ended = true;
    if (changed.failure == Failure::kNone) changed.failure = failure;
  });
}

bool GroupTickets::heard(uint64_t ticket, size_t part) {
  return change(ticket, part, [](Part& changed) { changed.is_heard = true; });
}

bool GroupTickets::fail(uint64_t ticket, size_t part, Failure failure) {
  return change(ticket, part, [&](Part& changed) {
    if (changed.failure == Failure::kNone) changed.failure = failure;
  });
}

TicketState GroupTickets::state(uint64_t ticket) const {
  const Ticket& known = *find(ticket);
  if (known.open_parts > 0)
    return known.is_late ? TicketState::kQuarantined : TicketState::kPending;
  return failure(ticket) == Failure::kNone ? TicketState::kDone : TicketState::kFailed;
}

Failure GroupTickets::failure(uint64_t ticket) const {
  const std::vector<Part>& parts = find(ticket)->parts;
  const auto failed = std::find_if(parts.begin(), parts.end(),
                                   [](const Part& part) { return part.failure != Failure::kNone; });
  return failed == parts.end() ? Failure::kNone : failed->failure;
}

std::vector<uint64_t> GroupTickets::missing(uint64_t ticket) const {
  std::vector<uint64_t> peers;
  for (const Part& part : find(ticket)->parts)
    if (!part.is_over() || part.failure != Failure::kNone) peers.push_back(part.peer);
  return peers;
}

}  // namespace braid::fabric
