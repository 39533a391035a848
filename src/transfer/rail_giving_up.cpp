// Rail: reads and writes of files that are given up while the owner's file system does not answer.
// The link goes on: closing it would end them too, but it would hold up everything else.
#include <algorithm>
#include <utility>

#include "transfer/rail.h"

namespace braid::transfer {

// ---- This side gives up ----

void Rail::give_up(uint64_t id, uint64_t piece) {
  Link* link = links_.find(id);
  if (link == nullptr || link->is_closed || !can_give_up_in(link->version)) return;
  end_unless_under_way(*link, piece);
  given_up_.push_back({id, piece, 0});
  look_after_given_up();
}

/// The owner knows nothing of a piece that waits here, nor of parts that it was not told of.
void Rail::end_unless_under_way(Link& link, uint64_t piece) {
  const auto is_it = [&](const Piece& each) { return each.id == piece; };
  if (std::erase_if(link.waiting, is_it) + std::erase_if(link.reads, is_it) > 0)
    return ended(piece, Cause::kCancelled);
  uint64_t found = 0;
  file_pieces_.for_each([&](uint64_t number, FilePiece& each) {
    if (each.piece.id != piece) return;
    if (each.cause == Cause::kNone) each.cause = Cause::kCancelled;
    found = number;
  });
  if (found != 0) end_file_piece_if_over(found);
}

/// False: the piece waits for nothing that the owner does.
bool Rail::say_given_up(uint64_t id, uint64_t piece) {
  if (!is_open(id)) return false;
  const bool is_reading = reading_.contains(piece);
  std::vector<uint64_t> told;
  file_parts_.for_each([&](uint64_t number, const FilePart& part) {
    if (part.is_told && file_pieces_.find(part.piece)->piece.id == piece) told.push_back(number);
  });
  if (is_reading) send(id, ReadGivenUp{piece});
  for (const uint64_t part : told) send(id, WriteGivenUp{part});
  return is_reading || !told.empty();
}

/// Messages have no order, and get lost where connections break. So it is said until the piece has
/// ended.
void Rail::look_after_given_up() {
  std::erase_if(given_up_, [this](GivenUp& each) {
    return has_to_ask(each.asked_ns) && !say_given_up(each.link, each.piece);
  });
}

// ---- The peer has given up ----

/// What is still read for it lands nowhere.
void Rail::given_up(uint64_t id, const ReadGivenUp& read) {
  uint64_t found = 0;
  file_reads_.for_each([&](uint64_t number, FileRead& each) {
    if (each.link != id || each.request.id != read.id) return;
    if (each.cause == Cause::kNone) each.cause = Cause::kCancelled;
    found = number;
  });
  if (found != 0) end_read_if_over(found);
}

/// A write that has begun ends when the file system has answered.
void Rail::given_up(uint64_t id, Link& link, const WriteGivenUp& write) {
  if (link.to_write.erase(write.id) > 0) send(id, FileWritten{write.id, Cause::kCancelled});
}

}  // namespace braid::transfer
