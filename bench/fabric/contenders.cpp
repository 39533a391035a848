#include "bench/fabric/contenders.h"

#include <deque>
#include <utility>

#include "bench/fabric/buffers.h"

namespace braid::bench {
namespace {

constexpr uint64_t kLimitNs = 60'000'000'000;

}  // namespace

BraidContender::BraidContender(const Rails& rails, TargetProcess& target,
                               std::span<std::byte> source)
    : target_(target), engine_(open_engine(rails)) {
  const uint64_t peer = engine_->connect(target.engine_address(), now_ns() + kLimitNs).value();
  while (engine_->peer_state(peer).value() == fabric::PeerState::kConnecting)
    engine_->step(now_ns());
  while (!target.descriptor()) engine_->step(now_ns());
  memory_there_ = engine_->open_target(*target.descriptor()).value();
  region_ = engine_->add_region(source).value();
}

Status BraidContender::prepare(const Load&) {
  target_.serve(TargetProcess::Serves::kBraid);
  return {};
}

Result<uint64_t> BraidContender::post(const Load& load, uint64_t first) {
  const uint64_t deadline_ns = now_ns() + kLimitNs;
  if (!load.is_paged) {
    const uint64_t offset = load.place(first) * load.size_bytes;
    return engine_->write(region_, memory_there_, {offset, offset, load.size_bytes}, 1,
                          deadline_ns);
  }
  fabric::Pages pages{{}, load.size_bytes, 0};
  pages.indices.resize(kPagesAtOnce);
  for (uint64_t i = 0; i < kPagesAtOnce; ++i)
    pages.indices[i] = static_cast<uint32_t>(load.place(first + i));
  return engine_->write_pages(region_, memory_there_, load.size_bytes, pages, pages, 1,
                              deadline_ns);
}

Result<bool> BraidContender::has_ended(uint64_t ticket) {
  const auto state = engine_->state(ticket);
  if (!state.ok()) return state.status();
  if (state.value() == fabric::TicketState::kPending) return false;
  if (state.value() != fabric::TicketState::kDone) return Status::error("a write has failed");
  engine_->forget(ticket);
  return true;
}

Status BraidContender::write(const Load& load) {
  std::deque<uint64_t> tickets;
  for (uint64_t posted = 0; posted < load.count || !tickets.empty();) {
    while (posted < load.count && (tickets.size() + 1) * load.unit() <= load.depth) {
      const auto ticket = post(load, posted);
      if (!ticket.ok()) return ticket.status();
      tickets.push_back(ticket.value());
      posted += load.unit();
    }
    engine_->step(now_ns());
    while (!tickets.empty()) {
      const auto ended = has_ended(tickets.front());
      if (!ended.ok()) return ended.status();
      if (!ended.value()) break;
      tickets.pop_front();
    }
  }
  return {};
}

PlainContender::PlainContender(const Rails& rails, TargetProcess& target,
                               std::span<const std::byte> source)
    : target_(target), plain_(*rails.quirks) {
  plain_.read_from(source);
  plain_.connect(target.plain_address());
}

Status PlainContender::prepare(const Load&) {
  target_.serve(TargetProcess::Serves::kPlain);
  return {};
}

Status PlainContender::write(const Load& load) {
  plain_.write(target_.plain_target(), load);
  return {};
}

}  // namespace braid::bench
