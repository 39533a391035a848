// StagedDomain: the writer's side, for writes from GPUs of ours and into those of peers.
#include <algorithm>
#include <utility>

#include "fabric/staged/limits.h"
#include "fabric/staged/parts.h"
#include "host/random_number.h"

namespace braid::fabric::staged {

bool StagedDomain::begin(const Write& write, bool to_gpu, const Region& source) {
  Peer& peer = peers_.at(write.peer);
  if (peer.postings >= kPostingsOfPeerMax) return false;
  Posting posting;
  posting.write = write;
  posting.write.further = {};
  posting.segments.push_back({write.source, write.target_address});
  posting.segments.insert(posting.segments.end(), write.further.begin(), write.further.end());
  for (const Segment& segment : posting.segments) posting.size_bytes += segment.source.size();
  posting.number = next_posting_++;
  posting.to_gpu = to_gpu;
  posting.from_gpu = source.is_gpu();
  ++peer.postings;
  const uint32_t index = postings_.add(std::move(posting));
  peer.queue.push_back(index);
  if (postings_.at(index).from_gpu && !peer.ring) open_ring(peer);
  waiting_.insert(write.peer);
  advance(write.peer);
  return true;
}

/// Opens our ring to the peer. Postings from a GPU fail without one.
void StagedDomain::open_ring(Peer& peer) {
  std::optional<Ring> ring = take_ring(spare_local_);
  if (!ring) return;
  if (!ring->region) {
    const Result<uint32_t> region = wire_->add_region(ring->memory.bytes(), Access::kLocal);
    if (!region.ok()) return spare_local_.push_back(std::move(*ring));
    ring->region = region.value();
  }
  peer.ring = std::move(ring);
  peer.spans = SpanRing(kRingBytes);
}

void StagedDomain::greet(uint32_t index) {
  Peer& peer = peers_.at(index);
  peer.state = Peer::State::kAsked;
  peer.number = random_number();
  peer_of_number_[peer.number] = index;
  Line& line = lines_.at(peer.line);
  line.greetings.push_back(index);
  if (!std::exchange(line.is_talking, true)) talking_.push_back(peer.line);
}

std::optional<uint32_t> StagedDomain::peer_of(uint64_t number) const {
  const auto found = peer_of_number_.find(number);
  return found == peer_of_number_.end() ? std::nullopt : std::optional(found->second);
}

void StagedDomain::handle_ring(const Record& record,
                               const std::vector<std::vector<std::byte>>& doors) {
  const std::optional<uint32_t> index = peer_of(record.session);
  if (!index) return;
  if (!record.ok) return break_session(*index);
  Peer& peer = peers_.at(*index);
  if (peer.state != Peer::State::kAsked) return;
  // A piece would wait for ever for room in a smaller ring.
  if (record.size_bytes < kPieceBytesMax) return leave_ring(*index, record.number);
  // Each ring has a connection of its own at each endpoint, and one that never works would fail
  // them all.
  const bool is_narrow = std::exchange(peer.is_cautious, false);
  const std::vector<Bytes> further(doors.begin() + 1, is_narrow ? doors.begin() + 1 : doors.end());
  const Result<uint32_t> way = way_to(*index, doors.front(), further);
  if (!way.ok()) return leave_ring(*index, record.number);
  peer.way = way.value();
  peer.state = Peer::State::kOpen;
  peer.session = record.number;
  peer.remote = {record.offset_bytes, record.key};
  peer.remote_spans = SpanRing(record.size_bytes);
  advance(*index);
}

/// The ring that the owner has just given is of no use.
void StagedDomain::leave_ring(uint32_t index, uint64_t session) {
  tell(peers_.at(index).line, {.kind = Kind::kGoodbye, .session = session});
  break_session(index);
}

// ---- Pieces ----

void StagedDomain::advance(uint32_t index) {
  Peer& peer = peers_.at(index);
  while (!peer.queue.empty()) {
    const uint32_t posting = peer.queue.front();
    if (!begin_piece(index, posting)) break;
    if (Posting* begun = postings_.find(posting); begun != nullptr && !begun->is_in_queue())
      peer.queue.pop_front();
  }
  if (peer.queue.empty()) waiting_.erase(index);
}

/// Begins the posting's next piece. False: not now. A posting that cannot begin at all fails, and
/// leaves the queue.
bool StagedDomain::begin_piece(uint32_t index, uint32_t number) {
  Peer& peer = peers_.at(index);
  Posting& posting = postings_.at(number);
  if (posting.from_gpu && !peer.ring) {
    fail(number);
    return true;
  }
  if (posting.to_gpu && peer.state == Peer::State::kUnknown) greet(index);
  if (posting.to_gpu && peer.state != Peer::State::kOpen) return false;
  Piece piece;
  piece.posting = number;
  piece.offset_bytes = posting.next;
  piece.size_bytes = std::min(posting.size_bytes - posting.next, kPieceBytesMax);
  // If the wire delivers the immediate, it goes with the last piece, after all others have landed.
  const bool is_last = posting.next + piece.size_bytes == posting.size_bytes;
  if (!posting.to_gpu && posting.write.immediate && is_last && posting.pieces > 0) return false;
  if (!take_spans(peer, posting, piece)) return false;
  posting.next += piece.size_bytes;
  ++posting.pieces;
  const uint32_t added = pieces_.add(piece);
  if (posting.from_gpu)
    copy_to_ring(added);
  else
    to_post_.push_back(added);
  return true;
}

/// The runs of the piece, each within one segment, in their order in the rings.
std::vector<Segment> StagedDomain::runs_of(const Posting& posting, const Piece& piece) {
  std::vector<Segment> runs;
  const uint64_t end = piece.offset_bytes + piece.size_bytes;
  uint64_t begin = 0;  // of the segment
  for (const auto& [source, target_address] : posting.segments) {
    const uint64_t from = std::max(piece.offset_bytes, begin);
    const uint64_t to = std::min(end, begin + source.size());
    if (from < to)
      runs.push_back({source.subspan(from - begin, to - from), target_address + (from - begin)});
    begin += source.size();
  }
  return runs;
}

void StagedDomain::copy_to_ring(uint32_t index) {
  Piece& piece = pieces_.at(index);
  const Posting& posting = postings_.at(piece.posting);
  Peer& peer = peers_.at(posting.write.peer);
  const Region& source = regions_.at(posting.write.region);
  gpu::Passage& memory = peer.ring->memory;
  memory.pin(source.lane);
  auto to = reinterpret_cast<CUdeviceptr>(memory.bytes().data()) + piece.span.offset_bytes;
  piece.uses_bounce_buffer = memory.begin_copy();
  std::vector<gpu::Copy> copies;
  for (const Segment& run : runs_of(posting, piece)) {
    copies.push_back({to, reinterpret_cast<CUdeviceptr>(run.source.data()), run.source.size(),
                      own(Own::kPiece, index), ended_, false, posting.write.region, nullptr,
                      piece.uses_bounce_buffer});
    to += run.source.size();
  }
  piece.awaited = copies.size();
  copies_ += copies.size();
  source.lane->copy(gpu::CopyKind::kToHost, copies);
}

bool StagedDomain::take_spans(Peer& peer, const Posting& posting, Piece& piece) {
  if (posting.from_gpu && !peer.spans.has_room(piece.size_bytes)) return false;
  if (posting.to_gpu && !peer.remote_spans.has_room(piece.size_bytes)) return false;
  if (posting.from_gpu) piece.span = *peer.spans.take(piece.size_bytes);
  if (posting.to_gpu) piece.remote_span = *peer.remote_spans.take(piece.size_bytes);
  piece.visit = peer.number;
  return true;
}

/// Whether the peer, and its ring that the piece is for, are still there.
bool StagedDomain::may_go_on(const Peer& peer, const Posting& posting, const Piece& piece) {
  return !peer.is_gone && (!posting.to_gpu || piece.visit == peer.number);
}

void StagedDomain::copied_to_ring(uint32_t index, bool ok) {
  Piece& piece = pieces_.at(index);
  const Posting& posting = postings_.at(piece.posting);
  Peer& peer = peers_.at(posting.write.peer);
  piece.ok = piece.ok && ok;
  if (--piece.awaited > 0) return;
  peer.ring->memory.end_copy(piece.uses_bounce_buffer);
  const bool may_go = may_go_on(peer, posting, piece);
  if (piece.ok && posting.ok && may_go) return to_post_.push_back(index);
  // Nothing was posted for the piece, so its spans are free again.
  peer.spans.give_back(piece.span.number);
  if (posting.to_gpu && may_go) peer.remote_spans.give_back(piece.remote_span.number);
  end_piece(index, false);
}

/// A peer that is gone may look like a full queue for ever: it does not hold up the others.
void StagedDomain::post_pieces() {
  for (size_t left = to_post_.size(); left > 0; --left) {
    const uint32_t piece = to_post_.front();
    to_post_.pop_front();
    if (!post_piece(piece)) to_post_.push_back(piece);
  }
}

bool StagedDomain::post_piece(uint32_t index) {
  Piece& piece = pieces_.at(index);
  const Posting& posting = postings_.at(piece.posting);
  Peer& peer = peers_.at(posting.write.peer);
  if (!may_go_on(peer, posting, piece)) {
    if (posting.from_gpu) peer.spans.give_back(piece.span.number);
    end_piece(index, false);
    return true;
  }
  const std::vector<Segment> segments = wire_segments_of(peer, posting, piece);
  Write write;
  piece.way = posting.to_gpu ? peer.way : peer.door;
  write.peer = piece.way ? ways_.at(*piece.way).wire : lines_.at(peer.line).wire;
  write.context = own(Own::kPiece, index);
  write.region = posting.from_gpu ? *peer.ring->region : regions_.at(posting.write.region).wire;
  write.source = segments.front().source;
  write.target_address = segments.front().target_address;
  write.further = std::span(segments).subspan(1);
  write.target_key = posting.to_gpu ? peer.remote.key : posting.write.target_key;
  const bool is_last = piece.offset_bytes + piece.size_bytes == posting.size_bytes;
  if (!posting.to_gpu && is_last) {
    write.immediate = posting.write.immediate;
    write.slices = posting.write.slices;
  }
  const bool is_posted = wire_->post_write(write);
  if (is_posted && piece.way) ++ways_.at(*piece.way).pieces;
  return is_posted;
}

/// The segments of the piece's write: contiguous at an end that is a ring, and a single one if both
/// ends are.
std::vector<Segment> StagedDomain::wire_segments_of(const Peer& peer, const Posting& posting,
                                                    const Piece& piece) const {
  const uint64_t ring_address = peer.remote.base + piece.remote_span.offset_bytes;
  const Bytes in_ring =
      posting.from_gpu
          ? Bytes(peer.ring->memory.bytes()).subspan(piece.span.offset_bytes, piece.size_bytes)
          : Bytes();
  if (posting.from_gpu && posting.to_gpu) return {{in_ring, ring_address}};
  std::vector<Segment> segments = runs_of(posting, piece);
  uint64_t at = 0;  // in the ring
  for (Segment& segment : segments) {
    const uint64_t size_bytes = segment.source.size();
    if (posting.from_gpu) segment.source = in_ring.subspan(at, size_bytes);
    if (posting.to_gpu) segment.target_address = ring_address + at;
    at += size_bytes;
  }
  return segments;
}

void StagedDomain::posted(uint32_t index, bool ok) {
  Piece& piece = pieces_.at(index);
  const Posting& posting = postings_.at(piece.posting);
  const uint32_t number = posting.write.peer;
  Peer& peer = peers_.at(number);
  if (piece.way) {
    --ways_.at(*piece.way).pieces;
    close_if_over(*piece.way);
  }
  if (posting.from_gpu) peer.spans.give_back(piece.span.number);
  if (!posting.to_gpu) return end_piece(index, ok);
  const bool may_go = may_go_on(peer, posting, piece);
  if (!ok || !may_go) {
    peer.is_cautious = peer.is_cautious || (!ok && may_go);
    end_piece(index, false);
    if (may_go) break_session(number);  // the piece may still land: its span stays in use
    return;
  }
  piece.is_announced = true;
  uint64_t at = piece.remote_span.offset_bytes;
  for (const Segment& run : runs_of(posting, piece)) {
    const uint64_t run_number = uint64_t{next_run_++} << 32 | index;
    piece.unanswered.insert(run_number);
    tell(peer.line, {.kind = Kind::kPiece,
                     .has_immediate = posting.write.immediate.has_value(),
                     .immediate = posting.write.immediate.value_or(0),
                     .session = peer.session,
                     .number = run_number,
                     .write = posting.number,
                     .offset_bytes = at,
                     .size_bytes = run.source.size(),
                     .total_bytes = posting.size_bytes,
                     .address = run.target_address,
                     .key = posting.write.target_key,
                     .slices = posting.write.slices});
    at += run.source.size();
  }
}

/// An owner that does not know whether its answer has arrived says it again, so each run counts
/// once.
void StagedDomain::handle_done(const Record& record) {
  const std::optional<uint32_t> peer = peer_of(record.session);
  const uint32_t index = static_cast<uint32_t>(record.number);
  Piece* piece = pieces_.find(index);
  if (!peer || piece == nullptr || postings_.at(piece->posting).write.peer != *peer) return;
  if (piece->unanswered.erase(record.number) == 0) return;
  piece->ok = piece->ok && record.ok;
  if (!piece->unanswered.empty()) return;
  peers_.at(*peer).remote_spans.give_back(piece->remote_span.number);
  end_piece(index, piece->ok);
}

// ---- Ends ----

void StagedDomain::end_piece(uint32_t index, bool ok) {
  const uint32_t number = pieces_.at(index).posting;
  pieces_.erase(index);
  --postings_.at(number).pieces;
  if (!ok) return fail(number);
  end_if_over(number);
}

/// No more pieces of the posting begin. It ends when its pieces under way have ended.
void StagedDomain::fail(uint32_t number) {
  Posting& posting = postings_.at(number);
  posting.ok = false;
  if (posting.is_in_queue()) std::erase(peers_.at(posting.write.peer).queue, number);
  end_if_over(number);
}

void StagedDomain::end_if_over(uint32_t number) {
  const Posting& posting = postings_.at(number);
  if (!posting.is_over()) return;
  const uint32_t index = posting.write.peer;
  Peer& peer = peers_.at(index);
  if (!posting.ok && posting.to_gpu && peer.state == Peer::State::kOpen)
    tell(peer.line, {.kind = Kind::kForget, .session = peer.session, .write = posting.number});
  ready_.push_back({Event::kPosted, posting.ok, 0, 0, posting.write.context});
  --peer.postings;
  postings_.erase(number);
  forget_if_over(index);
}

/// Nothing more is written into this ring of the owner's; the next write asks for another one.
/// Announced pieces do not read our memory any more, but may never be answered, so they end here.
void StagedDomain::break_session(uint32_t index) {
  Peer& peer = peers_.at(index);
  if (peer.state == Peer::State::kUnknown) return;
  peer_of_number_.erase(peer.number);
  peer.state = Peer::State::kUnknown;
  peer.number = 0;
  leave_way(peer.way);
  Line& line = lines_.at(peer.line);
  std::erase(line.greetings, index);
  std::erase_if(line.records, [&](const Record& record) {
    const bool is_ours = record.kind == Kind::kPiece || record.kind == Kind::kForget;
    return is_ours && record.session == peer.session;
  });
  std::vector<uint32_t> announced;
  pieces_.for_each([&](uint32_t number, const Piece& piece) {
    if (piece.is_announced && postings_.at(piece.posting).write.peer == index)
      announced.push_back(number);
  });
  for (const uint32_t piece : announced) end_piece(piece, false);
  for (const uint32_t posting : std::vector<uint32_t>(peer.queue.begin(), peer.queue.end()))
    if (postings_.find(posting) != nullptr && postings_.at(posting).to_gpu) fail(posting);
}

}  // namespace braid::fabric::staged
