// Engine: scatters and barriers, which go to many peers at once.
#include <string>
#include <utility>

#include "fabric/engine.h"

namespace braid::fabric {
namespace {

Status no_such_group() { return Status::error("there is no such group (any more)"); }

std::string name(size_t member, uint64_t peer) {
  return "member " + std::to_string(member) + ", peer " + std::to_string(peer);
}

}  // namespace

Result<uint64_t> Engine::add_group(std::vector<GroupMember> members) {
  if (members.empty()) return Status::error("a group has at least one member");
  std::unordered_map<uint32_t, size_t> heard;
  for (size_t i = 0; i < members.size(); ++i) {
    const GroupMember& member = members[i];
    const auto wrong = [&](const std::string& why) {
      return Status::error(name(i, member.peer) + ": " + why);
    };
    const Result<PeerState> state = peer_state(member.peer);
    if (!state.ok() || state.value() != PeerState::kConnected)
      return wrong("the peer is not connected");
    if (member.target != 0) {
      const PeerTarget* target = targets_.find(member.target);
      if (Status refused = check_target(target); !refused.ok()) return wrong(refused.message());
      if (target->peer != member.peer) return wrong("its target is another peer's memory");
    }
    if ((member.immediate_here == 0) != (member.immediate_there == 0))
      return wrong("a barrier needs an immediate of each side");
    if (member.immediate_here == 0) continue;
    if (!counters_.is_claimed(member.immediate_here))
      return wrong("this engine has not acquired the immediate that the peer is to send");
    if (hears_.contains(member.immediate_here) || !heard.emplace(member.immediate_here, i).second)
      return wrong("the immediate that the peer is to send is another member's");
    if (spent_.contains(member.immediate_here))
      return wrong("immediate " + std::to_string(member.immediate_here) +
                   " has served another group. Release it and acquire another");
  }
  for (const auto& [immediate, member] : heard) hears_[immediate] = {};
  return groups_.add({std::move(members)});
}

Status Engine::remove_group(uint64_t id) {
  const Group* group = groups_.find(id);
  if (group == nullptr) return no_such_group();
  if (group->barrier != 0)
    return Status::error("a barrier of the group is under way", "Wait for its ticket");
  for (const GroupMember& member : group->members) {
    hears_.erase(member.immediate_here);
    // What it has counted would stand for members that have yet to come to the next group.
    if (group->round > 0) spent_.insert(member.immediate_here);
  }
  groups_.erase(id);
  return {};
}

Result<uint64_t> Engine::scatter(uint64_t region_id, uint64_t group_id, std::span<const Part> parts,
                                 uint64_t deadline_ns, RailRange rails) {
  Region* region = regions_.find(region_id);
  if (region == nullptr) return Status::error("there is no such region (any more)");
  const Group* group = groups_.find(group_id);
  if (group == nullptr) return no_such_group();
  if (Status wrong = check_rails(rails); !wrong.ok()) return wrong;
  std::vector<PeerTarget*> targets;
  std::vector<uint64_t> target_bytes;
  std::vector<GroupTickets::Part> waits;
  for (size_t i = 0; i < group->members.size(); ++i) {
    const GroupMember& member = group->members[i];
    targets.push_back(targets_.find(member.target));
    if (Status wrong = check_target(targets.back()); !wrong.ok())
      return Status::error(name(i, member.peer) + ": " + wrong.message());
    target_bytes.push_back(targets.back()->target.size_bytes);
    waits.push_back({member.peer});
  }
  Result<std::vector<Plan>> plans =
      plan_scatter(parts, region->source.memory.size(), target_bytes, options_.slicing);
  if (!plans.ok()) return plans.status();
  const uint64_t ticket = group_tickets_.add(group_id, std::move(waits));
  region->transfers += parts.size();
  for (size_t i = 0; i < parts.size(); ++i) {
    Transfer transfer;
    transfer.plan = std::move(plans.value()[i]);
    transfer.source = &region->source;
    transfer.target = &targets[i]->target;
    transfer.immediate = parts[i].immediate;
    transfer.rails = rails;
    transfer.holds = {region_id, group->members[i].target, targets[i]->peer};
    start_part(ticket, i, std::move(transfer));
  }
  add_deadline(deadline_ns, Due::kTransfer, ticket);
  return ticket;
}

Result<uint64_t> Engine::barrier(uint64_t group_id, uint64_t deadline_ns) {
  Group* group = groups_.find(group_id);
  if (group == nullptr) return no_such_group();
  if (group->barrier != 0)
    return Status::error("a barrier of the group is under way", "Wait for its ticket");
  if (group->has_failed)
    return Status::error("a barrier of this group has failed: its members may have lost count",
                         "Make another group, with other immediates");
  std::vector<GroupTickets::Part> waits;
  for (size_t i = 0; i < group->members.size(); ++i) {
    const GroupMember& member = group->members[i];
    if (member.immediate_here == 0)
      return Status::error(name(i, member.peer) + ", has no immediates for barriers");
    const Result<PeerState> state = peer_state(member.peer);
    if (!state.ok() || state.value() != PeerState::kConnected)
      return Status::error(name(i, member.peer) + ": the peer is not connected");
    waits.push_back({member.peer, 0, false, false, Failure::kNone});
  }
  ++group->round;
  const uint64_t ticket = group_tickets_.add(group_id, std::move(waits));
  group->barrier = ticket;
  for (size_t i = 0; i < group->members.size(); ++i) {
    hears_[group->members[i].immediate_here] = {ticket, i, group->round};
    start_part(ticket, i, notification(group->members[i].peer, group->members[i].immediate_there));
  }
  for (size_t i = 0; i < group->members.size(); ++i) hear(group->members[i].immediate_here);
  add_deadline(deadline_ns, Due::kTransfer, ticket);
  return ticket;
}

/// The caller has no ticket of a part's transfer, so the transfer is forgotten at its end.
void Engine::start_part(uint64_t ticket, size_t part, Transfer transfer) {
  transfer.holds.ticket = ticket;
  transfer.holds.part = part;
  transfer.is_forgotten = true;
  group_tickets_.set_transfer(ticket, part, worker_.start(std::move(transfer)));
}

Result<std::vector<uint64_t>> Engine::missing(uint64_t ticket) const {
  if (!GroupTickets::is_one(ticket) || group_tickets_.find(ticket) == nullptr)
    return Status::error("there is no ticket " + std::to_string(ticket) +
                         " of a scatter or a barrier (any more)");
  return group_tickets_.missing(ticket);
}

/// The immediate has arrived. A member that is ahead may have sent it already for the next round.
void Engine::hear(uint32_t immediate) {
  const auto found = hears_.find(immediate);
  if (found == hears_.end() || found->second.ticket == 0) return;
  const Hearing& hearing = found->second;
  if (counters_.count(immediate) < hearing.round) return;
  if (group_tickets_.heard(hearing.ticket, hearing.part)) group_ticket_ended(hearing.ticket);
}

void Engine::group_ticket_ended(uint64_t ticket) {
  const TicketState state = group_tickets_.state(ticket);
  Group* group = groups_.find(group_tickets_.find(ticket)->group);
  if (group != nullptr && group->barrier == ticket) {
    group->barrier = 0;
    group->has_failed = state == TicketState::kFailed;
    for (const GroupMember& member : group->members) hears_[member.immediate_here] = {};
  }
  completions_.ticket_ended(ticket, static_cast<uint64_t>(state));
  group_tickets_.erase_forgotten(ticket);
}

/// The deadline has passed, or the caller has cancelled the ticket. After a cancel, parts that are
/// posted completely may end well. No member is waited for.
void Engine::stop_group_ticket(uint64_t ticket, Failure why) {
  const bool is_late = why == Failure::kDeadline;
  if (is_late) group_tickets_.set_late(ticket);
  const std::vector<GroupTickets::Part> parts = group_tickets_.find(ticket)->parts;
  for (size_t i = 0; i < parts.size(); ++i) {
    if (!parts[i].has_ended) worker_.stop(parts[i].transfer, why);
    const bool fails = is_late || !parts[i].is_heard;
    if (fails && group_tickets_.fail(ticket, i, why)) group_ticket_ended(ticket);
  }
}

/// Fails the barriers that wait for this peer, which is lost.
void Engine::fail_barriers_of(uint64_t peer) {
  std::vector<Hearing> of_peer;
  for (const auto& [immediate, hearing] : hears_)
    if (hearing.ticket != 0 &&
        group_tickets_.find(hearing.ticket)->parts[hearing.part].peer == peer)
      of_peer.push_back(hearing);
  for (const Hearing& hearing : of_peer)
    if (group_tickets_.fail(hearing.ticket, hearing.part, Failure::kDisconnected))
      group_ticket_ended(hearing.ticket);
}

}  // namespace braid::fabric
