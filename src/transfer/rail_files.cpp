// Rail: files that are opened and written. Bytes pass through a stage in parts; each part goes on
// while others wait.
#include <algorithm>
#include <utility>

#include "transfer/rail.h"

namespace braid::transfer {
namespace {

constexpr size_t kWriteParts = 8;  // of a link

}  // namespace

// ---- This side writes ----

void Rail::start_file_write(uint64_t id, Link& link, const Piece& piece) {
  if (link.stage_target == 0) {
    link.waiting.push_back(piece);
    if (has_to_ask(link.stage_asked_ns)) send(id, StageRequest{});
    return;
  }
  link.file_pieces.push_back(file_pieces_.add({piece, id, 0, 0, 0, Cause::kNone}));
  write_parts(id, link);
}

void Rail::take_answer(uint64_t id, Link& link, const StageAnswer& answer) {
  if (link.stage_asked_ns == 0 || link.stage_target != 0) return;
  if (answer.cause != Cause::kNone) {  // it has no memory now
    link.stage_asked_ns = 0;
    for (const Piece& piece : std::exchange(link.waiting, {}))
      if (piece.operation == Operation::kWrite && piece.file != 0)
        ended(piece.id, answer.cause);
      else
        link.waiting.push_back(piece);
    return;
  }
  const auto descriptor = fabric::decode_descriptor(answer.descriptor, secret_);
  const Result<uint64_t> target = descriptor.ok() ? engine_->open_target(descriptor.value())
                                                  : Result<uint64_t>(descriptor.status());
  const bool is_whole = target.ok() && descriptor.value().size_bytes == answer.size_bytes;
  if (!is_whole || answer.size_bytes > kWriteParts * kStagedBytes)
    return lose(id, fabric::PeerFailure::kTooMuch);
  link.stage_target = target.value();
  link.stage_free = Stage::offsets(answer.size_bytes);
  start_waiting(id, link);
}

void Rail::write_parts(uint64_t id, Link& link) {
  while (!link.stage_free.empty() && !link.file_pieces.empty()) {
    const uint64_t number = link.file_pieces.front();
    FilePiece& piece = *file_pieces_.find(number);
    const uint64_t rest = piece.piece.local.size() - piece.cut_bytes;
    if (rest == 0 || piece.cause != Cause::kNone) {
      link.file_pieces.pop_front();
      continue;
    }
    const FilePart part{number, piece.cut_bytes, std::min(rest, kStagedBytes),
                        link.stage_free.back(), false};
    const Buffer& source = *buffers_.find(piece.piece.buffer);
    const auto base = static_cast<uint64_t>(piece.piece.local.data() - source.memory.data());
    const Result<uint64_t> ticket = engine_->write(
        regions_.at(piece.piece.buffer), link.stage_target,
        {base + part.offset_bytes, part.slot, part.size_bytes}, std::nullopt, now_ns_ + kLongestNs);
    if (!ticket.ok()) return lose(id, fabric::PeerFailure::kNetwork);
    link.stage_free.pop_back();
    piece.cut_bytes += part.size_bytes;
    ++piece.writing;
    const uint64_t number_of_part = file_parts_.add(FilePart(part));
    (void)engine_->when_ended(
        ticket.value(),
        under_way_.add({Doing::kStaging, id, {}, 0, ticket.value(), number_of_part}));
  }
}

/// A part is in the owner's stage, or its write has failed.
void Rail::part_staged(const UnderWay& staged, bool is_done) {
  FilePart& part = *file_parts_.find(staged.part);
  FilePiece& piece = *file_pieces_.find(part.piece);
  --piece.writing;
  Link* link = links_.find(staged.link);
  const bool is_staged = is_done && link != nullptr && !link->is_closed;
  if (is_staged && piece.cause == Cause::kNone) {
    ++piece.told;
    part.is_told = true;
    return send(staged.link,
                FileWrite{staged.part, piece.piece.file, piece.piece.address + part.offset_bytes,
                          part.size_bytes, part.slot});
  }
  const uint64_t number = part.piece;
  if (is_staged)  // another part of the piece was refused, or it was given up
    link->stage_free.push_back(part.slot);
  else
    piece.cause = Cause::kPathFailed;
  file_parts_.erase(staged.part);
  end_file_piece_if_over(number);
  if (is_staged) return write_parts(staged.link, *link);
  lose(staged.link, fabric::PeerFailure::kNetwork);
}

void Rail::take_answer(uint64_t id, Link& link, const FileWritten& answer) {
  const FilePart* found = file_parts_.find(answer.id);
  if (found == nullptr || !found->is_told || file_pieces_.find(found->piece)->link != id) return;
  const FilePart part = *found;
  file_parts_.erase(answer.id);
  FilePiece& piece = *file_pieces_.find(part.piece);
  --piece.told;
  if (piece.cause == Cause::kNone) piece.cause = answer.cause;
  if (answer.cause == Cause::kNone) link.counts.written_bytes += part.size_bytes;
  link.stage_free.push_back(part.slot);
  end_file_piece_if_over(part.piece);
  write_parts(id, link);
}

void Rail::end_file_piece_if_over(uint64_t number) {
  const FilePiece& piece = *file_pieces_.find(number);
  const bool is_cut = piece.cut_bytes == piece.piece.local.size() || piece.cause != Cause::kNone;
  if (!is_cut || piece.writing > 0 || piece.told > 0) return;
  const Link* link = links_.find(piece.link);
  ended(piece.piece.id, piece.cause, piece.cause == Cause::kPathFailed);
  if (link != nullptr) std::erase(links_.find(piece.link)->file_pieces, number);
  file_pieces_.erase(number);
}

/// Ends the file pieces of a link that ends. Parts on their way into the stage still read their
/// source.
void Rail::end_file_pieces(uint64_t id) {
  std::vector<uint64_t> told, pieces;
  file_parts_.for_each([&](uint64_t number, const FilePart& part) {
    if (part.is_told && file_pieces_.find(part.piece)->link == id) told.push_back(number);
  });
  for (const uint64_t number : told) {
    --file_pieces_.find(file_parts_.find(number)->piece)->told;
    file_parts_.erase(number);
  }
  file_pieces_.for_each([&](uint64_t number, FilePiece& piece) {
    if (piece.link != id) return;
    piece.cause = Cause::kPathFailed;
    pieces.push_back(number);
  });
  for (const uint64_t number : pieces) end_file_piece_if_over(number);
}

// ---- The peer opens and writes ----

/// The peer asks again while the file system does not answer. It is opened once.
void Rail::open_file(uint64_t id, Link& link, const FileOpen& request) {
  if (!link.opening.insert(request.token).second) return;
  owned_.exports.open(link.who, request.path, request.wanted,
                      [this, id, token = request.token](Cause cause, uint64_t file, uint64_t size) {
                        Link* then = links_.find(id);
                        if (then == nullptr || then->is_closed) return;
                        then->opening.erase(token);
                        send(id, FileOpened{token, known_in(then->version, cause), file, size});
                      });
}

void Rail::make_stage(uint64_t id, Link& link) {
  if (link.stage != nullptr)  // the answer was lost
    return send(id, StageAnswer{Cause::kNone, link.stage->bytes().size(), link.stage_descriptor});
  StageAnswer answer;
  answer.cause = Cause::kTooMuch;
  link.stage = Stage::make(kWriteParts);
  const auto region = link.stage == nullptr ? Result<uint64_t>(Status::error("no memory"))
                                            : engine_->add_region(link.stage->bytes());
  if (region.ok()) {
    link.stage_region = region.value();
    const auto granted = engine_->grant(region.value(), link.peer, 0, link.stage->bytes().size());
    if (granted.ok()) {
      link.closed_grants.push_back(granted.value().grant);  // looked at once the link is closed
      link.stage_descriptor = fabric::encode(granted.value().descriptor, secret_);
      answer = {Cause::kNone, link.stage->bytes().size(), link.stage_descriptor};
    }
  }
  if (answer.cause != Cause::kNone) {  // it may ask again
    if (link.stage_region != 0) (void)engine_->remove_region(link.stage_region);
    link.stage_region = 0;
    link.stage = nullptr;
  }
  send(id, answer);
}

void Rail::write_file(uint64_t id, Link& link, const FileWrite& write) {
  const bool is_within = link.stage != nullptr &&
                         write.offset_bytes <= link.stage->bytes().size() &&
                         write.size_bytes <= link.stage->bytes().size() - write.offset_bytes &&
                         write.size_bytes > 0 && write.position < kFileBytesMax;
  if (!is_within) return send(id, FileWritten{write.id, known_in(link.version, Cause::kOutside)});
  if (!link.to_write.insert(write.id).second) return;
  owned_.exports.use(link.who, write.file, kMayWrite,
                     [this, id, write](Cause cause, const OpenFilePointer& file) {
                       begin_file_write(id, write, cause, file);
                     });
}

/// The file is open, or cannot be opened. Nothing is written for a link that was closed meanwhile:
/// it counts as fenced. Nor is a write that was given up.
void Rail::begin_file_write(uint64_t id, const FileWrite& write, Cause wrong,
                            const OpenFilePointer& file) {
  Link* found = links_.find(id);
  if (found == nullptr || found->is_closed) return;
  Link& link = *found;
  if (link.to_write.erase(write.id) == 0) return;
  if (wrong == Cause::kNone && !is_within_file_limit(write.position + write.size_bytes))
    wrong = Cause::kFileError;
  if (wrong != Cause::kNone) return send(id, FileWritten{write.id, known_in(link.version, wrong)});
  ++link.file_writes;
  const auto done = [this, id, stage = link.stage, answer = write.id](Cause cause) {
    Link* then = links_.find(id);
    if (then == nullptr) return;
    --then->file_writes;
    send(id, FileWritten{answer, known_in(then->version, cause)});
  };
  owned_.jobs->start({true, file, link.stage->bytes().subspan(write.offset_bytes, write.size_bytes),
                      write.position, done});
}

}  // namespace braid::transfer
