// Rail: reads and writes of this side.
#include <algorithm>
#include <utility>

#include "transfer/rail.h"

namespace braid::transfer {
namespace {

/// However long the network holds a write: the scheduler gives it up long before.
constexpr uint64_t kLongestNs = 30'000'000'000;

}  // namespace

void Rail::post(uint64_t id, const Piece& piece) {
  Link* link = links_.find(id);
  if (link == nullptr || link->is_closed) return ended(piece.id, Cause::kPathFailed);
  start(id, *link, piece);
}

void Rail::start(uint64_t id, Link& link, const Piece& piece) {
  if (!regions_.contains(piece.buffer)) return ended(piece.id, Cause::kLocalMemory);
  if (piece.operation == Operation::kWrite && piece.file != 0)
    start_file_write(id, link, piece);
  else if (piece.operation == Operation::kWrite)
    start_write(id, link, piece);
  else
    start_read(id, link, piece);
}

/// What waited for a grant or a loan; what still has none waits again.
void Rail::start_waiting(uint64_t id, Link& link) {
  for (const Piece& piece : std::exchange(link.waiting, {})) start(id, link, piece);
}

// ---- Writes ----

void Rail::start_write(uint64_t id, Link& link, const Piece& piece) {
  const auto next = link.granted.upper_bound(piece.address);
  if (next != link.granted.begin()) {
    const auto& [base, granted] = *std::prev(next);
    const uint64_t offset_bytes = piece.address - base;
    if (offset_bytes < granted.size_bytes &&
        piece.local.size() <= granted.size_bytes - offset_bytes)
      return write_granted(id, link, piece, base, granted);
  }
  link.waiting.push_back(piece);
  // One question at a time for what lies together; its answer starts all that it covers.
  const bool is_asked = std::any_of(link.asked.begin(), link.asked.end(), [&](const auto& asked) {
    return asked.second == piece.address;
  });
  if (is_asked || !link.asked.empty()) return;
  link.asked[++tokens_] = piece.address;
  send(id, GrantRequest{tokens_, piece.address, piece.local.size()});
}

void Rail::write_granted(uint64_t id, Link& link, const Piece& piece, uint64_t base,
                         const Granted& granted) {
  const Buffer& source = *buffers_.find(piece.buffer);
  const fabric::Slice slice{static_cast<uint64_t>(piece.local.data() - source.memory.data()),
                            piece.address - base, piece.local.size()};
  const Result<uint64_t> ticket = engine_->write(regions_.at(piece.buffer), granted.target, slice,
                                                 std::nullopt, now_ns_ + kLongestNs);
  if (!ticket.ok()) {  // the owner has taken it back: it is asked again, and says why
    link.granted.erase(base);
    return start_write(id, link, piece);
  }
  const uint64_t request =
      under_way_.add({Doing::kWriting, id, piece.id, piece.local.size(), 0, ticket.value(), 0});
  (void)engine_->when_ended(ticket.value(), request);
}

void Rail::take_answer(uint64_t id, Link& link, const GrantAnswer& answer) {
  const auto asked = link.asked.find(answer.token);
  if (asked == link.asked.end()) return;
  const uint64_t address = asked->second;
  link.asked.erase(asked);
  Cause refused = answer.cause;
  if (refused == Cause::kNone && !link.granted.contains(answer.address)) {
    const auto descriptor = fabric::decode_descriptor(answer.descriptor, secret_);
    const Result<uint64_t> target = descriptor.ok() ? engine_->open_target(descriptor.value())
                                                    : Result<uint64_t>(descriptor.status());
    const bool is_whole = target.ok() && descriptor.value().size_bytes == answer.size_bytes;
    if (!is_whole) return lose(id, fabric::PeerFailure::kTooMuch);
    link.granted[answer.address] = {answer.size_bytes, target.value()};
  }
  if (refused != Cause::kNone) {
    std::vector<Piece> others;
    for (const Piece& piece : std::exchange(link.waiting, {}))
      if (piece.operation == Operation::kWrite && piece.file == 0 && piece.address == address)
        ended(piece.id, refused == Cause::kOtherWay ? Cause::kPathFailed : refused);
      else
        others.push_back(piece);
    link.waiting = std::move(others);
  }
  start_waiting(id, link);
}

void Rail::write_ended(uint64_t, const UnderWay& write, bool is_done) {
  Link* link = links_.find(write.link);
  if (is_done) {
    if (link != nullptr) link->counts.written_bytes += write.size_bytes;
    return ended(write.piece, Cause::kNone);
  }
  if (link != nullptr) ++link->counts.failures;
  const bool is_revoked = engine_->failure(write.ticket) == fabric::Failure::kRevoked;
  ended(write.piece, Cause::kPathFailed, !is_revoked);
  if (!is_revoked) lose(write.link, fabric::PeerFailure::kNetwork);
}

// ---- Reads ----

void Rail::start_read(uint64_t id, Link& link, const Piece& piece) {
  const auto known = link.loans.find(piece.buffer);
  if (known == link.loans.end() || !known->second.is_confirmed) {
    link.waiting.push_back(piece);
    if (known != link.loans.end()) return;
    const auto granted = engine_->grant(regions_.at(piece.buffer), link.peer, 0,
                                        buffers_.find(piece.buffer)->memory.size());
    if (!granted.ok()) {
      link.waiting.pop_back();
      return ended(piece.id, Cause::kPathFailed);
    }
    link.loans[piece.buffer] = {granted.value().grant, false};
    return send(id, Lend{piece.buffer, fabric::encode(granted.value().descriptor, secret_)});
  }
  const Result<uint32_t> immediate = engine_->counters().acquire();
  if (!immediate.ok()) return ended(piece.id, Cause::kTooMuch);
  const Buffer& target = *buffers_.find(piece.buffer);
  link.reads.push_back({piece.id, piece.file, piece.address, piece.local.size(), piece.buffer,
                        static_cast<uint64_t>(piece.local.data() - target.memory.data()),
                        immediate.value()});
  mark(id, link);
  const uint64_t request =
      under_way_.add({Doing::kReading, id, piece.id, piece.local.size(), immediate.value(), 0, 0});
  reading_[piece.id] = request;
  (void)engine_->when_counted(immediate.value(), fabric::immediates_of_write(piece.local.size()),
                              request);
}

void Rail::take_answer(uint64_t id, Link& link, const Lent& answer) {
  const auto loan = link.loans.find(answer.number);
  if (loan == link.loans.end()) return;
  if (answer.cause != Cause::kNone) return lose(id, fabric::PeerFailure::kTooMuch);
  loan->second.is_confirmed = true;
  start_waiting(id, link);
}

void Rail::take_refusals(Link& link, const Refused& refused) {
  for (const Refusal& refusal : refused.refusals) {
    const auto reading = reading_.find(refusal.id);
    if (reading == reading_.end()) continue;
    const UnderWay* read = under_way_.find(reading->second);
    if (link_of_peer_[link.peer] != read->link) continue;
    // What the owner has begun may have landed in part: the end of the link ends it.
    if (refusal.cause == Cause::kPathFailed || refusal.cause == Cause::kNone)
      return lose(read->link, fabric::PeerFailure::kNetwork);
    read_ended(reading->second, refusal.cause);
  }
}

void Rail::read_ended(uint64_t request, Cause cause) {
  const UnderWay read = *under_way_.find(request);
  under_way_.erase(request);
  reading_.erase(read.piece);
  const uint64_t expected = fabric::immediates_of_write(read.size_bytes);
  const uint64_t arrived = engine_->counters().count(read.immediate);
  // The owner that refuses a read makes no immediate, and a fenced one no more of them.
  const bool is_short = cause == Cause::kPathFailed && arrived < expected;
  (void)engine_->release_immediate(read.immediate, is_short ? expected - arrived : 0);
  if (is_short) engine_->counters().forgive(read.immediate);
  if (Link* link = links_.find(read.link); link != nullptr) {
    if (cause == Cause::kNone) link->counts.read_bytes += read.size_bytes;
    if (cause == Cause::kPathFailed) ++link->counts.failures;
  }
  ended(read.piece, cause == Cause::kOtherWay ? Cause::kPathFailed : cause);
}

}  // namespace braid::transfer
