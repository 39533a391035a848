#include "fabric/engine.h"

#include <algorithm>
#include <limits>
#include <string>
#include <utility>

namespace braid::fabric {
namespace {

constexpr uint64_t kNever = std::numeric_limits<uint64_t>::max();

Status no_such(const char* what, uint64_t id) {
  return Status::error("there is no " + std::string(what) + " " + std::to_string(id) +
                       " (any more)");
}

}  // namespace

Result<std::unique_ptr<Engine>> Engine::open(std::vector<std::unique_ptr<Domain>> rails,
                                             const EngineOptions& options) {
  if (rails.empty() || rails.size() > kRailsMax)
    return Status::error("an engine has 1 to " + std::to_string(kRailsMax) + " rails, not " +
                         std::to_string(rails.size()));
  std::unique_ptr<Engine> engine(new Engine(std::move(rails), options));
  if (Status failed = engine->prepare(); !failed.ok()) return failed;
  return engine;
}

Engine::Engine(std::vector<std::unique_ptr<Domain>> rails, const EngineOptions& options)
    : options_(options), worker_(std::move(rails), *this) {}

Engine::~Engine() = default;

Status Engine::prepare() {
  address_.engine = options_.engine;
  address_.slicing = options_.slicing;
  scratch_source_.memory = scratch_;
  retired_.resize(worker_.rail_count());
  for (size_t i = 0; i < worker_.rail_count(); ++i) {
    Domain& domain = worker_.rail(i);
    const Result<uint32_t> local = domain.add_region(scratch_, Access::kLocal);
    if (!local.ok()) return local.status();
    scratch_source_.rails.push_back(local.value());
    const Result<uint32_t> remote =
        domain.add_region(MutableBytes(scratch_).first(1), Access::kRemoteWrite);
    if (!remote.ok()) return remote.status();
    closing_fences_ = closing_fences_ && domain.traits().closing_fences;
    const Bytes name = domain.address();
    address_.rails.push_back({domain.traits().provider,
                              {name.begin(), name.end()},
                              domain.remote_range(remote.value())});
  }
  for (size_t i = 0; i < worker_.rail_count(); ++i) {
    Result<std::unique_ptr<Mailbox>> mailbox =
        Mailbox::open(worker_.rail(i), options_.receives, options_.sends);
    if (!mailbox.ok()) return mailbox.status();
    mailboxes_.push_back(std::move(mailbox).value());
  }
  return {};
}

// ---- Regions ----

Result<uint64_t> Engine::add_region(MutableBytes memory) {
  if (memory.empty()) return Status::error("a region has at least one byte");
  Region region;
  region.source.memory = memory;
  for (size_t i = 0; i < worker_.rail_count(); ++i) {
    const Result<uint32_t> added = worker_.rail(i).add_region(memory, Access::kLocal);
    if (!added.ok()) {
      for (size_t j = 0; j < i; ++j) worker_.rail(j).remove_region(region.source.rails[j]);
      return added.status();
    }
    region.source.rails.push_back(added.value());
  }
  return regions_.add(std::move(region));
}

Status Engine::remove_region(uint64_t id) {
  const Region* region = regions_.find(id);
  if (region == nullptr) return no_such("region", id);
  if (region->grants > 0)
    return Status::error("the region is granted to a peer", "Revoke, and wait until it is fenced");
  if (region->transfers > 0)
    return Status::error("a write still reads the region", "Wait for its ticket");
  for (size_t i = 0; i < worker_.rail_count(); ++i)
    worker_.rail(i).remove_region(region->source.rails[i]);
  regions_.erase(id);
  return {};
}

// ---- Writes ----

/// `make_plan(source_bytes, target_bytes)`.
template <typename MakePlan>
Result<uint64_t> Engine::write_by(const MakePlan& make_plan, uint64_t region, uint64_t target,
                                  std::optional<uint32_t> immediate, uint64_t deadline_ns,
                                  RailRange rails) {
  const Region* from = regions_.find(region);
  if (from == nullptr) return no_such("region", region);
  PeerTarget* to = targets_.find(target);
  if (Status wrong = check_target(to); !wrong.ok()) return wrong;
  if (Status wrong = check_rails(rails); !wrong.ok()) return wrong;
  return start(region, *to, target, make_plan(from->source.memory.size(), to->target.size_bytes),
               immediate, deadline_ns, rails);
}

Result<uint64_t> Engine::write(uint64_t region, uint64_t target, const Slice& slice,
                               std::optional<uint32_t> immediate, uint64_t deadline_ns,
                               RailRange rails) {
  const auto plan = [&](uint64_t source_bytes, uint64_t target_bytes) {
    return Plan::single(slice, source_bytes, target_bytes, options_.slicing);
  };
  return write_by(plan, region, target, immediate, deadline_ns, rails);
}

Result<uint64_t> Engine::write_pages(uint64_t region, uint64_t target, uint64_t page_bytes,
                                     Pages source, Pages destination,
                                     std::optional<uint32_t> immediate, uint64_t deadline_ns,
                                     RailRange rails) {
  const auto plan = [&](uint64_t source_bytes, uint64_t target_bytes) {
    return Plan::paged(page_bytes, std::move(source), std::move(destination), source_bytes,
                       target_bytes, options_.slicing);
  };
  return write_by(plan, region, target, immediate, deadline_ns, rails);
}

Result<uint64_t> Engine::write_slices(uint64_t region, uint64_t target, std::vector<Slice> slices,
                                      std::optional<uint32_t> immediate, uint64_t deadline_ns,
                                      RailRange rails) {
  const auto plan = [&](uint64_t source_bytes, uint64_t target_bytes) {
    return Plan::list(std::move(slices), source_bytes, target_bytes, options_.slicing);
  };
  return write_by(plan, region, target, immediate, deadline_ns, rails);
}

Result<uint64_t> Engine::start(uint64_t region, PeerTarget& target, uint64_t target_id,
                               Result<Plan> plan, std::optional<uint32_t> immediate,
                               uint64_t deadline_ns, RailRange rails) {
  if (!plan.ok()) return plan.status();
  Transfer transfer;
  transfer.plan = std::move(plan).value();
  transfer.source = &regions_.find(region)->source;
  transfer.target = &target.target;
  transfer.immediate = immediate;
  transfer.rails = rails;
  transfer.holds = {region, target_id, target.peer};
  ++regions_.find(region)->transfers;
  const uint64_t ticket = worker_.start(std::move(transfer));
  add_deadline(deadline_ns, Due::kTransfer, ticket);
  return ticket;
}

Result<uint64_t> Engine::notify(uint64_t peer, uint32_t immediate, uint64_t deadline_ns) {
  Peer* to = peers_.find(peer);
  if (to == nullptr || to->is_leaving) return no_such("peer", peer);
  if (to->state != PeerState::kConnected) return Status::error("the peer is not connected");
  const uint64_t ticket = worker_.start(notification(peer, immediate));
  add_deadline(deadline_ns, Due::kTransfer, ticket);
  return ticket;
}

Transfer Engine::notification(uint64_t peer, uint32_t immediate) {
  Transfer transfer;
  transfer.plan = Plan::single({32, 0, 1}, scratch_.size(), 1, options_.slicing).value();
  transfer.source = &scratch_source_;
  transfer.target = &peers_.find(peer)->scratch;
  transfer.immediate = immediate;
  transfer.holds.peer = peer;
  return transfer;
}

void Engine::transfer_ended(uint64_t id, const Transfer& transfer) {
  if (transfer.is_probe) probe_ended(transfer);
  const Transfer::Holds held = transfer.holds;
  if (Region* region = regions_.find(held.region)) --region->transfers;
  confirm_if_drained(held.target);
  remove_if_drained(held.peer);
  if (held.ticket == 0)
    completions_.ticket_ended(id, static_cast<uint64_t>(worker_.state(id)));
  else if (group_tickets_.transfer_ended(held.ticket, held.part, transfer.failure))
    group_ticket_ended(held.ticket);
}

Result<TicketState> Engine::state(uint64_t ticket) const {
  const bool is_of_group = GroupTickets::is_one(ticket);
  if (is_of_group && group_tickets_.find(ticket) != nullptr) return group_tickets_.state(ticket);
  if (is_of_group || !worker_.is_known(ticket)) return no_such("ticket", ticket);
  return worker_.state(ticket);
}

Failure Engine::failure(uint64_t ticket) const {
  if (GroupTickets::is_one(ticket))
    return group_tickets_.find(ticket) != nullptr ? group_tickets_.failure(ticket) : Failure::kNone;
  return worker_.is_known(ticket) ? worker_.failure(ticket) : Failure::kNone;
}

Status Engine::cancel(uint64_t ticket) {
  const Result<TicketState> now = state(ticket);
  if (!now.ok()) return now.status();
  if (GroupTickets::is_one(ticket))
    stop_group_ticket(ticket, Failure::kCancelled);
  else
    worker_.stop(ticket, Failure::kCancelled);
  return {};
}

void Engine::forget(uint64_t ticket) {
  completions_.ticket_is_gone(ticket);
  if (GroupTickets::is_one(ticket))
    group_tickets_.forget(ticket);
  else
    worker_.forget(ticket);
}

// ---- Being told ----

Status Engine::when_ended(uint64_t ticket, uint64_t request) {
  const Result<TicketState> now = state(ticket);
  if (!now.ok()) return now.status();
  if (now.value() == TicketState::kDone || now.value() == TicketState::kFailed)
    completions_.add({About::kTicket, request, ticket, static_cast<uint64_t>(now.value()), false});
  else
    completions_.when_ended(ticket, request);
  return {};
}

Status Engine::when_counted(uint32_t immediate, uint64_t count, uint64_t request) {
  if (!counters_.is_claimed(immediate))
    return Status::error("immediate " + std::to_string(immediate) + " has no owner", "Acquire it");
  completions_.when_counted(immediate, count, request);
  completions_.counted(immediate, counters_.count(immediate));
  return {};
}

Status Engine::release_immediate(uint32_t immediate, uint64_t missing) {
  if (hears_.contains(immediate))
    return Status::error("a group listens to immediate " + std::to_string(immediate),
                         "Remove the group first");
  if (Status refused = counters_.release(immediate, missing); !refused.ok()) return refused;
  spent_.erase(immediate);
  completions_.immediate_is_gone(immediate);
  return {};
}

void Engine::watch_messages(uint64_t request) {
  completions_.watch_messages(request);
  if (!inbox_.empty()) completions_.message_arrived();
}

Status Engine::refuse_stream_wait(uint32_t immediate) const {
  if (!counters_.is_claimed(immediate))
    return Status::error("immediate " + std::to_string(immediate) + " has no owner", "Acquire it");
  return Status::error(
      "over " + address_.rails.front().provider +
          " a CPU polls for immediates, and what a stream waits for must not need the CPU",
      "Ask for a callback, and enqueue the work there");
}

void Engine::immediate_arrived(uint32_t immediate, uint32_t count) {
  counters_.arrived(immediate, count);
  if (completions_.expects_counts()) completions_.counted(immediate, counters_.count(immediate));
  if (!hears_.empty()) hear(immediate);
}

// ---- Time ----

bool Engine::step(uint64_t now_ns) {
  now_ns_ = now_ns;
  const bool posted = post_messages();
  const bool moved = worker_.step(now_ns);
  look_after_peers(now_ns);
  meet_deadlines(now_ns);
  fence_drained();
  return post_messages() || moved || posted;
}

bool Engine::post() {
  const bool posted = post_messages();
  return worker_.post() || posted;
}

bool Engine::post_messages() {
  bool posted = false;
  for (const auto& mailbox : mailboxes_) posted = mailbox->post() || posted;
  return posted;
}

bool Engine::is_idle() const { return worker_.is_idle() && !waits_for_room(); }

bool Engine::waits_for_room() const {
  return worker_.waits_for_room() ||
         std::any_of(mailboxes_.begin(), mailboxes_.end(),
                     [](const auto& mailbox) { return mailbox->queued() > 0; });
}

void Engine::add_deadline(uint64_t at_ns, Due what, uint64_t id) {
  if (deadlines_.size() >= deadlines_max_) {
    std::erase_if(deadlines_, [&](const Deadline& due) { return !matters(due); });
    std::make_heap(deadlines_.begin(), deadlines_.end(), Deadline::is_later);
    deadlines_max_ = std::max<size_t>(1024, 2 * deadlines_.size());
  }
  deadlines_.push_back({at_ns, what, id});
  std::push_heap(deadlines_.begin(), deadlines_.end(), Deadline::is_later);
}

void Engine::meet_deadlines(uint64_t now_ns) {
  while (!deadlines_.empty() && deadlines_.front().at_ns <= now_ns) {
    std::pop_heap(deadlines_.begin(), deadlines_.end(), Deadline::is_later);
    const Deadline due = deadlines_.back();
    deadlines_.pop_back();
    if (matters(due)) meet(due);
  }
}

bool Engine::matters(const Deadline& due) {
  if (due.what == Due::kTransfer && GroupTickets::is_one(due.id))
    return !group_tickets_.has_ended(due.id);
  if (due.what == Due::kTransfer) return !worker_.has_ended(due.id);
  if (due.what == Due::kGrant) {
    const auto grant = grants_.find(due.id);
    return grant != grants_.end() && grant->second.fence == Fence::kRevoking;
  }
  const Peer* peer = peers_.find(due.id);
  if (peer == nullptr) return false;
  if (due.what == Due::kProbe) return peer->next_probe_ns == due.at_ns;
  if (due.what == Due::kShut) return true;
  if (due.what == Due::kGoodbye) return peer->is_to_say_goodbye;
  return due.what == Due::kPeer ? peer->state == PeerState::kConnecting : peer->is_leaving;
}

void Engine::meet(const Deadline& due) {
  if (due.what == Due::kTransfer) stop_late(due.id);
  if (due.what == Due::kGrant) give_up_waiting(due.id, grants_.at(due.id));
  if (due.what == Due::kProbe) {
    peers_.find(due.id)->next_probe_ns = kNever;
    probe_routes(due.id);
  }
  if (due.what == Due::kPeer) fail_peer(due.id, PeerFailure::kNoAnswer);
  if (due.what == Due::kShut) abandon(due.id, Absence::kShut);
  if (due.what == Due::kGoodbye) say_goodbye_again(due.id);
  if (due.what == Due::kFarewell) abandon(due.id, Absence::kSilent);
}

void Engine::stop_late(uint64_t ticket) {
  const bool is_of_group = GroupTickets::is_one(ticket);
  if (is_of_group)
    stop_group_ticket(ticket, Failure::kDeadline);
  else
    worker_.stop(ticket, Failure::kDeadline);
  if (!(is_of_group ? group_tickets_.has_ended(ticket) : worker_.has_ended(ticket)))
    completions_.ticket_ended(ticket, static_cast<uint64_t>(TicketState::kQuarantined));
}

void Engine::foreign_completed(size_t rail, const Completion& completion) {
  Mailbox& mailbox = *mailboxes_[rail];
  if (completion.event == Event::kReceived) {
    if (completion.ok) handle(rail, mailbox.received(completion));
    mailbox.done_with(completion);
    return;
  }
  Mailbox::Ended ended = mailbox.sent(completion);
  const uint64_t id = ended.letter.tag;
  const bool is_goodbye = ended.letter.is_goodbye;
  Peer* peer = peers_.find(id);
  if (!ended.ok && peer != nullptr) {
    ++peer->routes[rail].failures;
    peer->routes[rail].health.suspect(now_ns_);
    probe_routes(id);
    // A peer that misses a message cannot obey it.
    if (!peer->is_leaving && !send_again(rail, std::move(ended.letter)))
      fail_peer(id, PeerFailure::kNetwork);
  }
  if (is_goodbye) goodbye_ended(id, ended.ok);
  remove_if_drained(id);
}

}  // namespace braid::fabric
