#include "bench/fabric/contenders.h"

#include <array>
#include <cassert>
#include <deque>
#include <utility>

#include "base/try.h"
#include "bench/fabric/buffers.h"

namespace braid::bench {
namespace {

constexpr uint64_t kLimitNs = 60'000'000'000;

/// All members have been through as many barriers as the process that writes.
template <typename Step>
Status await_barriers(const TargetProcess& target, const Step& step) {
  for (const uint64_t deadline_ns = now_ns() + kLimitNs; !target.are_barriers_over(); step())
    if (now_ns() > deadline_ns) return Status::error("a member was not at all barriers");
  return {};
}

}  // namespace

EngineContender::EngineContender(const Rails& rails, TargetProcess& target,
                                 std::span<std::byte> source)
    : target_(target), engine_(open_engine(rails)) {
  for (size_t i = 0; i < target.member_count(); ++i) {
    const auto address = fabric::decode_address(target.member(i).engine_address).value();
    members_.push_back({engine_->connect(address, now_ns() + kLimitNs).value(), 0, 0, 0});
  }
  for (size_t i = 0; i < members_.size(); ++i) open_member(i);
  region_ = engine_->add_region(source).value();
  group_ = engine_->add_group(members_).value();
}

void EngineContender::open_member(size_t index) {
  fabric::GroupMember& member = members_[index];
  while (engine_->peer_state(member.peer).value() == fabric::PeerState::kConnecting ||
         !target_.descriptor(index))
    engine_->step(now_ns());
  member.target = engine_->open_target(*target_.descriptor(index)).value();
  member.immediate_there = kBarrierThere;
  member.immediate_here = barrier_here(index);
  const Status claimed = engine_->counters().claim(member.immediate_here);
  assert(claimed.ok());
  static_cast<void>(claimed);
}

Status EngineContender::prepare(const Load& load) {
  target_.serve(TargetProcess::Serves::kEngine, load.pattern == Pattern::kBarrier ? load.count : 0);
  return {};
}

Result<uint64_t> EngineContender::post(const Load& load, uint64_t first) {
  const uint64_t deadline_ns = now_ns() + kLimitNs;
  const auto offset = [&](uint64_t i) { return load.place(first + i) * load.size_bytes; };
  switch (load.pattern) {
    case Pattern::kSingle:
      return engine_->write(region_, members_[0].target, {offset(0), offset(0), load.size_bytes}, 1,
                            deadline_ns);
    case Pattern::kPaged: {
      const fabric::Pages pages{load.pages(first), load.size_bytes, 0};
      return engine_->write_pages(region_, members_[0].target, load.size_bytes, pages, pages, 1,
                                  deadline_ns);
    }
    case Pattern::kScatter: {
      std::array<fabric::Part, kMembers> parts;
      for (uint64_t i = 0; i < kMembers; ++i)
        parts[i] = {{offset(i), offset(i), load.size_bytes}, 1};
      return engine_->scatter(region_, group_, parts, deadline_ns);
    }
    case Pattern::kBarrier: return engine_->barrier(group_, deadline_ns);
  }
  return Status::error("no such pattern");
}

Result<bool> EngineContender::has_ended(uint64_t ticket) {
  const auto state = engine_->state(ticket);
  if (!state.ok()) return state.status();
  if (state.value() == fabric::TicketState::kPending) return false;
  if (state.value() != fabric::TicketState::kDone) return Status::error("a write has failed");
  engine_->forget(ticket);
  return true;
}

Status EngineContender::write(const Load& load) {
  std::deque<uint64_t> tickets;
  for (uint64_t posted = 0; posted < load.count || !tickets.empty();) {
    BRAID_TRY(post_to_depth(load, posted, tickets, [&] { return post(load, posted); }));
    engine_->step(now_ns());
    while (!tickets.empty()) {
      const auto ended = has_ended(tickets.front());
      if (!ended.ok()) return ended.status();
      if (!ended.value()) break;
      tickets.pop_front();
    }
  }
  return await_barriers(target_, [this] { engine_->step(now_ns()); });
}

PlainContender::PlainContender(const Rails& rails, TargetProcess& target,
                               std::span<std::byte> source, bool is_gathering)
    : is_gathering_(is_gathering), target_(target), plain_(*rails.quirks) {
  plain_.read_from(source);
  for (size_t i = 0; i < target.member_count(); ++i) {
    const TargetProcess::Member member = target.member(i);
    plain_.connect(member.plain_address, member.plain_target);
  }
  if (!is_gathering) target.set_plain(plain_.address(), plain_.expose(source));
}

Status PlainContender::prepare(const Load& load) {
  target_.serve(TargetProcess::Serves::kPlain, load.pattern == Pattern::kBarrier ? load.count : 0);
  return {};
}

Status PlainContender::write(const Load& load) {
  if (load.pattern == Pattern::kBarrier) return write_barriers(load.count);
  plain_.write(load, is_gathering_ ? plain_.pages_of_posting(load.size_bytes) : 1);
  return {};
}

/// Who is ahead has sent the immediate of the next barrier already: each member at most one.
Status PlainContender::write_barriers(uint64_t count) {
  const size_t members = target_.member_count();
  uint64_t come = 0;
  for (uint64_t barrier = 1; barrier <= count; ++barrier) {
    for (size_t i = 0; i < members; ++i) plain_.signal(i);
    while (come < barrier * members) come += plain_.poll();
  }
  return await_barriers(target_, [this] { plain_.poll(); });
}

}  // namespace braid::bench
