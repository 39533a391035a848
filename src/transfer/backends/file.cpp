#include "transfer/backends/file.h"

#include <limits>

namespace braid::transfer {

Cause check(const Exports& exports, uint64_t number, Rights right, const OpenFile*& file) {
  file = exports.find(number);
  if (file == nullptr) return Cause::kNoFile;
  return (file->rights & right) == right ? Cause::kNone : Cause::kNotAllowed;
}

void FileBackend::post(uint32_t, const Piece& piece) {
  const bool is_write = piece.operation == Operation::kWrite;
  const OpenFile* file = nullptr;
  const Cause cause = check(exports_, piece.file, is_write ? kMayWrite : kMayRead, file);
  if (cause != Cause::kNone) return events_.push_back(PieceEnd{piece.id, cause, false});
  ++under_way_;
  const uint64_t id = piece.id;
  jobs_.start({is_write, file, piece.local, piece.address, [this, id](Cause why) {
                 --under_way_;
                 events_.push_back(PieceEnd{id, why, false});
               }});
}

void FileBackend::probe(uint32_t, uint64_t id) {
  events_.push_back(PieceEnd{id, Cause::kNone, false});
}

void FileBackend::fence(uint32_t way) { fencing_.push_back(way); }

bool FileBackend::step(uint64_t) {
  if (under_way_ == 0)
    for (const uint32_t way : std::exchange(fencing_, {})) events_.push_back(WayFenced{way});
  return !events_.empty();
}

uint64_t FileBackend::next_deadline_ns() const {
  return events_.empty() ? std::numeric_limits<uint64_t>::max() : 0;
}

}  // namespace braid::transfer
