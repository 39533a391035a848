#include "fabric/engine.h"

#include <algorithm>
#include <limits>
#include <string>
#include <utility>

namespace braid::fabric {
namespace {

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
  for (size_t i = 0; i < worker_.rail_count(); ++i) {
    Domain& domain = worker_.rail(i);
    const Result<uint32_t> local = domain.add_region(scratch_, Access::kLocal);
    if (!local.ok()) return local.status();
    scratch_source_.rails.push_back(local.value());
    const Result<uint32_t> remote =
        domain.add_region(MutableBytes(scratch_).first(1), Access::kRemoteWrite);
    if (!remote.ok()) return remote.status();
    const Bytes name = domain.address();
    address_.rails.push_back({domain.traits().provider,
                              {name.begin(), name.end()},
                              domain.remote_range(remote.value())});
  }
  Result<std::unique_ptr<Mailbox>> mailbox =
      Mailbox::open(worker_.rail(0), options_.receives, options_.sends);
  if (!mailbox.ok()) return mailbox.status();
  mailbox_ = std::move(mailbox).value();
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

Result<uint64_t> Engine::write(uint64_t region, uint64_t target, const Slice& slice,
                               std::optional<uint32_t> immediate, uint64_t deadline_ns) {
  const Region* source = regions_.find(region);
  if (source == nullptr) return no_such("region", region);
  PeerTarget* to = targets_.find(target);
  if (Status wrong = check_target(to); !wrong.ok()) return wrong;
  return start(
      region, *to, target,
      Plan::single(slice, source->source.memory.size(), to->target.size_bytes, options_.slicing),
      immediate, deadline_ns);
}

Result<uint64_t> Engine::write_pages(uint64_t region, uint64_t target, uint64_t page_bytes,
                                     Pages source, Pages destination,
                                     std::optional<uint32_t> immediate, uint64_t deadline_ns) {
  const Region* from = regions_.find(region);
  if (from == nullptr) return no_such("region", region);
  PeerTarget* to = targets_.find(target);
  if (Status wrong = check_target(to); !wrong.ok()) return wrong;
  return start(region, *to, target,
               Plan::paged(page_bytes, std::move(source), std::move(destination),
                           from->source.memory.size(), to->target.size_bytes, options_.slicing),
               immediate, deadline_ns);
}

Result<uint64_t> Engine::start(uint64_t region, PeerTarget& target, uint64_t target_id,
                               Result<Plan> plan, std::optional<uint32_t> immediate,
                               uint64_t deadline_ns) {
  if (!plan.ok()) return plan.status();
  Transfer transfer;
  transfer.plan = std::move(plan).value();
  transfer.source = &regions_.find(region)->source;
  transfer.target = &target.target;
  transfer.immediate = immediate;
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
  Transfer transfer;
  transfer.plan = Plan::single({32, 0, 1}, scratch_.size(), 1, options_.slicing).value();
  transfer.source = &scratch_source_;
  transfer.target = &to->scratch;
  transfer.immediate = immediate;
  transfer.holds.peer = peer;
  const uint64_t ticket = worker_.start(std::move(transfer));
  add_deadline(deadline_ns, Due::kTransfer, ticket);
  return ticket;
}

void Engine::transfer_ended(uint64_t, const Transfer& transfer) {
  const Transfer::Holds held = transfer.holds;
  if (Region* region = regions_.find(held.region)) --region->transfers;
  confirm_if_drained(held.target);
  remove_if_drained(held.peer);
}

Result<TicketState> Engine::state(uint64_t ticket) const {
  if (!worker_.is_known(ticket)) return no_such("ticket", ticket);
  return worker_.state(ticket);
}

Failure Engine::failure(uint64_t ticket) const {
  return worker_.is_known(ticket) ? worker_.failure(ticket) : Failure::kNone;
}

// ---- Time ----

bool Engine::step(uint64_t now_ns) {
  const bool posted = mailbox_->post();
  const bool moved = worker_.step();
  meet_deadlines(now_ns);
  fence_drained();
  return mailbox_->post() || moved || posted;
}

uint64_t Engine::next_deadline_ns() const {
  return deadlines_.empty() ? std::numeric_limits<uint64_t>::max() : deadlines_.front().at_ns;
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
  if (due.what == Due::kTransfer) return !worker_.has_ended(due.id);
  if (due.what == Due::kGrant) {
    const auto grant = grants_.find(due.id);
    return grant != grants_.end() && grant->second.fence == Fence::kRevoking &&
           !grant->second.is_closed;
  }
  const Peer* peer = peers_.find(due.id);
  return peer != nullptr && peer->state == PeerState::kConnecting;
}

void Engine::meet(const Deadline& due) {
  if (due.what == Due::kTransfer) worker_.stop(due.id, Failure::kDeadline);
  if (due.what == Due::kGrant) give_up_waiting(due.id, grants_.at(due.id));
  if (due.what == Due::kPeer) fail_peer(*peers_.find(due.id));
}

void Engine::foreign_completed(size_t, const Completion& completion) {
  if (completion.event == Event::kReceived) {
    if (completion.ok) handle(mailbox_->received(completion));
    mailbox_->done_with(completion);
    return;
  }
  const Mailbox::Ended ended = mailbox_->sent(completion);
  Peer* peer = peers_.find(ended.tag);
  if (!ended.ok && peer != nullptr) fail_peer(*peer);  // what it does not hear, it cannot obey
  remove_if_drained(ended.tag);
}

}  // namespace braid::fabric
