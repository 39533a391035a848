// Rail: reads and writes of this side.
#include <algorithm>
#include <utility>

#include "transfer/rail.h"

namespace braid::transfer {
namespace {

/// The cause as the scheduler sees it: another way may reach the memory.
Cause seen_here(Cause cause) { return cause == Cause::kOtherWay ? Cause::kPathFailed : cause; }

}  // namespace

std::optional<uint64_t> Rail::link_to(uint64_t engine) const {
  const std::optional<uint64_t> peer = engine_->find_peer(engine);
  const auto link = peer ? link_of_peer_.find(*peer) : link_of_peer_.end();
  return link == link_of_peer_.end() ? std::nullopt : std::optional(link->second);
}

/// Limits a gathered write, so that a large slice or many slices do not delay the end of another
/// one for long.
bool Rail::Gathered::has_room_for(uint64_t more_bytes) const {
  constexpr uint64_t kBytesMax = 256 << 10;
  return more_bytes <= kBytesMax && size_bytes <= kBytesMax - more_bytes &&
         shares.size() < kReadsInMessage;
}

void Rail::Gathered::add(const fabric::Slice& slice, uint64_t piece) {
  slices.push_back(slice);
  shares.push_back({piece, slice.size_bytes});
  size_bytes += slice.size_bytes;
}

void Rail::post(uint64_t id, const Piece& piece) {
  Link* link = links_.find(id);
  if (link == nullptr || link->is_closed) return ended(piece.id, Cause::kPathFailed);
  start(id, *link, piece);
}

/// Of several pieces, an earlier one may have closed the link: nothing would end those behind it.
void Rail::start(uint64_t id, Link& link, const Piece& piece) {
  if (link.is_closed) return ended(piece.id, Cause::kPathFailed);
  if (!regions_.contains(piece.buffer)) return ended(piece.id, Cause::kLocalMemory);
  if (piece.operation == Operation::kWrite && piece.file != 0)
    start_file_write(id, link, piece);
  else if (piece.operation == Operation::kWrite)
    start_write(id, link, piece);
  else
    start_read(id, link, piece);
}

/// Starts the pieces that waited for a grant or a loan. Pieces that still have none wait again.
void Rail::start_waiting(uint64_t id, Link& link) {
  for (const Piece& piece : std::exchange(link.waiting, {})) start(id, link, piece);
}

/// Whether a question is due: for the first time, or again. A slice that waits for the answer is
/// posted again as long as there is none.
bool Rail::has_to_ask(uint64_t& asked_ns) const {
  if (asked_ns != 0 && now_ns_ < asked_ns + kAskAgainNs) return false;
  asked_ns = std::max<uint64_t>(now_ns_, 1);
  return true;
}

// ---- Writes ----

/// The owner's grant that holds the piece; null: none.
const std::pair<const uint64_t, Rail::Granted>* Rail::find_granted(const Link& link,
                                                                   const Piece& piece) {
  const auto next = link.granted.upper_bound(piece.address);
  if (next == link.granted.begin()) return nullptr;
  const auto& found = *std::prev(next);
  const uint64_t offset_bytes = piece.address - found.first;
  const bool is_within = offset_bytes < found.second.size_bytes &&
                         piece.local.size() <= found.second.size_bytes - offset_bytes;
  return is_within ? &found : nullptr;
}

void Rail::start_write(uint64_t id, Link& link, const Piece& piece) {
  if (find_granted(link, piece) != nullptr) {
    link.writes.push_back(piece);
    return mark(id, link);
  }
  link.waiting.push_back(piece);
  // Asks for one grant at a time; its answer starts all pieces that it covers.
  if (!link.asked) {
    link.asked = GrantRequest{++tokens_, piece.address, piece.local.size()};
    link.asked_ns = 0;
  }
  if (has_to_ask(link.asked_ns)) send(id, *link.asked);
}

void Rail::post_writes(uint64_t id, Link& link) {
  const std::vector<Piece> pieces = std::exchange(link.writes, {});
  for (size_t next = 0; next < pieces.size();) {
    const size_t first = next;
    const auto* granted = find_granted(link, pieces[first]);
    if (granted == nullptr) {  // it was taken back meanwhile
      start(id, link, pieces[next++]);
      continue;
    }
    const uint64_t base = granted->first;
    Gathered write;
    write.region = regions_.at(pieces[first].buffer);
    write.target = granted->second.target;
    do {
      const Piece& piece = pieces[next++];
      write.add({offset_in_buffer(piece), piece.address - base, piece.local.size()}, piece.id);
    } while (next < pieces.size() && pieces[next].buffer == pieces[first].buffer &&
             write.has_room_for(pieces[next].local.size()) &&
             find_granted(link, pieces[next]) == granted);
    const Result<uint64_t> ticket = this->write(write, std::nullopt);
    if (!ticket.ok()) {  // the owner has taken it back: it is asked again, and says why
      link.granted.erase(base);
      for (size_t i = first; i < next; ++i) start(id, link, pieces[i]);
      continue;
    }
    const uint64_t request =
        under_way_.add({Doing::kWriting, id, std::move(write.shares), 0, ticket.value(), 0});
    (void)engine_->when_ended(ticket.value(), request);
  }
}

Result<uint64_t> Rail::write(const Gathered& write, std::optional<uint32_t> immediate) {
  const uint64_t deadline_ns = now_ns_ + kLongestNs;
  if (write.slices.size() == 1)
    return engine_->write(write.region, write.target, write.slices.front(), immediate, deadline_ns);
  return engine_->write_slices(write.region, write.target, write.slices, immediate, deadline_ns);
}

/// Takes a new grant. Buffers of the owner never overlap, so known grants that overlap this one
/// were taken back.
bool Rail::take_grant(Link& link, const GrantAnswer& answer) {
  const auto descriptor = fabric::decode_descriptor(answer.descriptor, secret_);
  if (!descriptor.ok() || descriptor.value().size_bytes != answer.size_bytes) return false;
  const auto known = link.granted.find(answer.address);
  if (known != link.granted.end() && known->second.grant == descriptor.value().grant) return true;
  const Result<uint64_t> target = engine_->open_target(descriptor.value());
  if (!target.ok()) return false;
  std::erase_if(link.granted, [&](const auto& each) {
    const auto& [address, granted] = each;
    return address - answer.address < answer.size_bytes ||
           answer.address - address < granted.size_bytes;
  });
  link.granted[answer.address] = {answer.size_bytes, target.value(), descriptor.value().grant};
  return true;
}

void Rail::take_answer(uint64_t id, Link& link, const GrantAnswer& answer) {
  if (!link.asked || link.asked->token != answer.token) return;
  const GrantRequest asked = *std::exchange(link.asked, std::nullopt);
  const Cause refused = answer.cause;
  const bool holds_it = asked.address - answer.address < answer.size_bytes;
  if (refused == Cause::kNone && (!holds_it || !take_grant(link, answer)))
    return lose(id, fabric::PeerFailure::kTooMuch);
  if (refused != Cause::kNone) {
    // Smaller pieces may lie within what a larger one leaves: they ask for themselves.
    const auto is_refused = [&](const Piece& piece) {
      return piece.operation == Operation::kWrite && piece.file == 0 &&
             piece.address == asked.address &&
             (refused != Cause::kOutside || piece.local.size() >= asked.size_bytes);
    };
    std::vector<Piece> others;
    for (const Piece& piece : std::exchange(link.waiting, {}))
      if (is_refused(piece))
        ended(piece.id, seen_here(refused));
      else
        others.push_back(piece);
    link.waiting = std::move(others);
  }
  start_waiting(id, link);
}

void Rail::write_ended(const UnderWay& write, bool is_done) {
  Link* link = links_.find(write.link);
  const bool may_land = !is_done && engine_->failure(write.ticket) != fabric::Failure::kRevoked;
  for (const Share& share : write.shares) {
    if (link != nullptr && is_done) link->counts.written_bytes += share.size_bytes;
    ended(share.piece, is_done ? Cause::kNone : Cause::kPathFailed, may_land, may_land);
  }
  if (link != nullptr && !is_done) ++link->counts.failures;
  if (may_land) lose(write.link, fabric::PeerFailure::kNetwork);
}

// ---- Reads ----

void Rail::start_read(uint64_t id, Link& link, const Piece& piece) {
  if (!goes_in_message(link, piece)) return start_lent_read(id, link, piece);
  link.small_reads.push_back(piece);
  mark(id, link);
}

void Rail::start_lent_read(uint64_t id, Link& link, const Piece& piece) {
  if (!regions_.contains(piece.buffer)) return ended(piece.id, Cause::kLocalMemory);
  const auto known = link.loans.find(piece.buffer);
  if (known == link.loans.end() || !known->second.is_confirmed) {
    link.waiting.push_back(piece);
    if (known != link.loans.end()) return lend(id, piece.buffer, known->second);
    const auto granted = engine_->grant(regions_.at(piece.buffer), link.peer, 0,
                                        buffers_.find(piece.buffer)->memory.size());
    if (!granted.ok()) {
      link.waiting.pop_back();
      return ended(piece.id, Cause::kPathFailed);
    }
    Loan& loan = link.loans[piece.buffer];
    loan.grant = granted.value().grant;
    loan.descriptor = fabric::encode(granted.value().descriptor, secret_);
    return lend(id, piece.buffer, loan);
  }
  link.reads.push_back(piece);
  mark(id, link);
}

void Rail::lend(uint64_t id, uint64_t buffer, Loan& loan) {
  if (has_to_ask(loan.asked_ns)) send(id, Lend{buffer, loan.descriptor});
}

/// Asks for reads. Reads that the owner can serve with one write share one immediate.
void Rail::post_reads(uint64_t id, Link& link) {
  const std::vector<Piece> pieces = std::exchange(link.reads, {});
  Reads message;
  for (size_t next = 0; next < pieces.size();) {
    const size_t first = next;
    const Result<uint32_t> immediate = engine_->counters().acquire();
    if (!immediate.ok()) {
      ended(pieces[next++].id, Cause::kTooMuch);
      continue;
    }
    Gathered read;
    const uint64_t request = under_way_.add({Doing::kReading, id, {}, immediate.value(), 0, 0});
    do {
      const Piece& piece = pieces[next++];
      read.add({0, 0, piece.local.size()}, piece.id);
      reading_[piece.id] = request;
      message.reads.push_back({piece.id, piece.file, piece.address, piece.local.size(),
                               piece.buffer, offset_in_buffer(piece), immediate.value()});
    } while (next < pieces.size() && pieces[first].file == 0 && pieces[next].file == 0 &&
             pieces[next].buffer == pieces[first].buffer &&
             read.has_room_for(pieces[next].local.size()) &&
             message.reads.size() < kReadsInMessage);
    under_way_.find(request)->shares = std::move(read.shares);
    await_reads(request);
    if (message.reads.size() < kReadsInMessage && next < pieces.size()) continue;
    link.outbox.push_back({encode(message), {}});
    message.reads.clear();
  }
  if (!message.reads.empty()) link.outbox.push_back({encode(message), {}});
}

/// Waits for as many immediates as the writes of all shares make.
void Rail::await_reads(uint64_t request) {
  const UnderWay& reads = *under_way_.find(request);
  (void)engine_->when_counted(reads.immediate, immediates_of(reads), request);
}

uint64_t Rail::immediates_of(const UnderWay& reads) {
  uint64_t count = 0;
  for (const Share& share : reads.shares) count += fabric::immediates_of_write(share.size_bytes);
  return count;
}

uint64_t Rail::offset_in_buffer(const Piece& piece) const {
  return static_cast<uint64_t>(piece.local.data() - buffers_.find(piece.buffer)->memory.data());
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
    // A read that the owner has begun may have landed in part: the end of the link ends it.
    if (refusal.cause == Cause::kPathFailed || refusal.cause == Cause::kNone)
      return lose(read->link, fabric::PeerFailure::kNetwork);
    read_refused(reading->second, refusal);
  }
}

/// Ends a refused read, for which the owner sends no immediate. The reads that share its immediate
/// go on.
void Rail::read_refused(uint64_t request, const Refusal& refusal) {
  UnderWay& reads = *under_way_.find(request);
  if (reads.shares.size() == 1) return read_ended(request, refusal.cause);
  std::erase_if(reads.shares, [&](const Share& share) { return share.piece == refusal.id; });
  reading_.erase(refusal.id);
  ended(refusal.id, seen_here(refusal.cause));
  await_reads(request);
}

void Rail::read_ended(uint64_t request, Cause cause) {
  const UnderWay read = std::move(*under_way_.find(request));
  under_way_.erase(request);
  const uint64_t expected = immediates_of(read);
  const uint64_t arrived = engine_->counters().count(read.immediate);
  // An owner sends no immediate for a refused read, and none at all once it is fenced.
  const bool is_short = cause == Cause::kPathFailed && arrived < expected;
  (void)engine_->release_immediate(read.immediate, is_short ? expected - arrived : 0);
  if (is_short) engine_->counters().forgive(read.immediate);
  Link* link = links_.find(read.link);
  if (link != nullptr && cause == Cause::kPathFailed) ++link->counts.failures;
  for (const Share& share : read.shares) {
    if (link != nullptr && cause == Cause::kNone) link->counts.read_bytes += share.size_bytes;
    reading_.erase(share.piece);
    ended(share.piece, seen_here(cause), false, cause == Cause::kPathFailed);
  }
}

}  // namespace braid::transfer
