// Rail: small reads, whose bytes follow the answer (Traits::answers_writes). Both sides copy by
// CPU, so that is for host memory alone. Several small reads at once cost less as one write, and a
// peer that takes no answers is not to fill memory with them: such reads are asked for by a loan.
#include <cstring>
#include <utility>

#include "transfer/rail.h"

namespace braid::transfer {
namespace {

constexpr size_t kWaitingMax = 256;  // messages to the peer that asks

}  // namespace

// ---- This side reads ----

bool Rail::goes_in_message(const Link& link, const Piece& piece) const {
  return answers_writes_ && can_read_small_in(link.version) && piece.file == 0 &&
         piece.local.size() <= kSmallReadBytesMax && buffers_.find(piece.buffer)->lane == nullptr;
}

void Rail::post_small_reads(uint64_t id, Link& link) {
  const bool is_alone = link.small_reads.size() == 1;
  for (const Piece& piece : std::exchange(link.small_reads, {})) {
    if (link.is_closed) {  // by an earlier one: nothing would end those behind it
      ended(piece.id, Cause::kPathFailed);
    } else if (is_alone) {
      link.small_asked[piece.id] = piece;
      send(id, SmallRead{piece.id, piece.address, piece.local.size()});
    } else {
      start_lent_read(id, link, piece);
    }
  }
}

void Rail::take_answer(uint64_t id, Link& link, const SmallReadAnswer& answer, Bytes bytes) {
  const auto found = link.small_asked.find(answer.id);
  if (found == link.small_asked.end()) return;
  const Piece piece = found->second;
  link.small_asked.erase(found);
  if (answer.cause == Cause::kOtherWay) return start_lent_read(id, link, piece);
  if (answer.cause != Cause::kNone) return ended(piece.id, answer.cause);
  if (bytes.size() != piece.local.size()) {
    ++link.counts.failures;
    ended(piece.id, Cause::kPathFailed);
    return lose(id, fabric::PeerFailure::kTooMuch);
  }
  std::memcpy(piece.local.data(), bytes.data(), bytes.size());
  link.counts.read_bytes += bytes.size();
  ended(piece.id, Cause::kNone);
}

// ---- The peer reads ----

void Rail::serve(Link& link, const SmallRead& read) {
  link.has_served_small = true;
  SmallReadAnswer answer;
  answer.id = read.id;
  const Buffer* buffer = nullptr;
  answer.cause = check(buffers_, read.address, read.size_bytes, kMayRead, buffer);
  if (answer.cause == Cause::kNone && read.size_bytes > kSmallReadBytesMax)
    answer.cause = Cause::kTooMuch;
  if (answer.cause == Cause::kNone &&
      (buffer->lane != nullptr || link.outbox.size() >= kWaitingMax))
    answer.cause = Cause::kOtherWay;
  Bytes bytes;
  if (answer.cause == Cause::kNone) {
    bytes = Bytes(buffer->memory).subspan(read.address - buffer->address(), read.size_bytes);
    link.counts.served_bytes += read.size_bytes;
  }
  send(link_of_peer_.at(link.peer), answer, bytes);
}

}  // namespace braid::transfer
