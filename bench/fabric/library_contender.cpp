#include "bench/fabric/library_contender.h"

#include <sched.h>

#include <chrono>
#include <cstring>
#include <deque>
#include <utility>

#include "base/try.h"
#include "bench/fabric/buffers.h"
#include "bench/fabric/library_owner.h"

namespace braid::bench {
namespace {

constexpr std::chrono::seconds kLimit{60};

}  // namespace

LibraryContender::LibraryContender(const Rails& rails, TargetProcess& target,
                                   std::span<std::byte> source)
    : target_(target), fabric_(open_fabric(rails.provider(), rails.count)) {
  region_ = fabric_.add_region(source.data(), source.size()).value();
  std::vector<Fabric::Member> members;
  for (size_t i = 0; i < target.member_count(); ++i) {
    peers_.push_back(open_member(i));
    members.push_back(peers_.back().member);
  }
  group_ = fabric_.add_group(members).value();
}

LibraryContender::Peer LibraryContender::open_member(size_t index) {
  const Fabric::Peer peer = fabric_.connect(target_.member(index).fabric_address, kLimit).value();
  const auto message = fabric_.receive(kLimit).value().value();
  Invitation invitation;
  std::memcpy(&invitation, message.bytes.data(), sizeof invitation);
  const Fabric::Target memory =
      fabric_.open_target({message.bytes.begin() + sizeof invitation, message.bytes.end()}).value();
  const Fabric::Immediate here = fabric_.acquire_immediate().value();
  Fabric::ByteList answer(sizeof here);
  std::memcpy(answer.data(), &here, sizeof here);
  (void)fabric_.send(peer, answer);
  return {{peer, memory, invitation.barrier, here}, invitation.written};
}

Status LibraryContender::prepare(const Load& load) {
  target_.serve(TargetProcess::Serves::kLibrary,
                load.pattern == Pattern::kBarrier ? load.count : 0);
  return {};
}

Result<Fabric::Ticket> LibraryContender::post(const Load& load, uint64_t first) {
  const auto offset = [&](uint64_t i) { return load.place(first + i) * load.size_bytes; };
  const auto& [member, written] = peers_[0];
  switch (load.pattern) {
    case Pattern::kSingle:
      return fabric_.write(region_, member.target, {offset(0), offset(0), load.size_bytes}, written,
                           kLimit);
    case Pattern::kPaged: {
      const Fabric::Pages pages{load.pages(first), load.size_bytes, 0};
      return fabric_.write_pages(region_, pages, member.target, pages, load.size_bytes, written,
                                 kLimit);
    }
    case Pattern::kScatter: {
      std::vector<Fabric::Part> parts;
      for (uint64_t i = 0; i < peers_.size(); ++i)
        parts.push_back({{offset(i), offset(i), load.size_bytes}, peers_[i].written});
      return fabric_.scatter(region_, group_, parts, kLimit);
    }
    case Pattern::kBarrier: return fabric_.barrier(group_, kLimit);
  }
  return Status::error("no such pattern");
}

Status LibraryContender::write(const Load& load) {
  std::deque<Fabric::Ticket> tickets;
  for (uint64_t posted = 0; posted < load.count || !tickets.empty();) {
    BRAID_TRY(post_to_depth(load, posted, tickets, [&] { return post(load, posted); }));
    const auto state = fabric_.wait(tickets.front(), kLimit);
    if (!state.ok()) return state.status();
    if (state.value() != Fabric::TicketState::kDone) return Status::error("a write has failed");
    fabric_.forget(tickets.front());
    tickets.pop_front();
  }
  for (const uint64_t begin_ns = now_ns(); !target_.are_barriers_over(); sched_yield())
    if (now_ns() - begin_ns > static_cast<uint64_t>(std::chrono::nanoseconds(kLimit).count()))
      return Status::error("a member was not at all barriers");
  return {};
}

}  // namespace braid::bench
