#include "transfer/backends/file.h"

#include <utility>

namespace braid::transfer {

void FileBackend::post(uint32_t, const Piece& piece) {
  const bool is_write = piece.operation == Operation::kWrite;
  begin();
  opening_.insert(piece.id);
  exports_.use(
      {}, piece.file, is_write ? kMayWrite : kMayRead,
      [this, piece](Cause cause, const OpenFilePointer& file) { start(piece, cause, file); });
}

/// The file is open, or cannot be opened.
void FileBackend::start(const Piece& piece, Cause cause, const OpenFilePointer& file) {
  if (opening_.erase(piece.id) == 0) return;  // it was given up
  const bool is_write = piece.operation == Operation::kWrite;
  if (cause == Cause::kNone && piece.address >= kFileBytesMax) cause = Cause::kOutside;
  if (cause == Cause::kNone && is_write &&
      !is_within_file_limit(piece.address + piece.local.size()))
    cause = Cause::kFileError;
  const uint64_t id = piece.id;
  if (cause != Cause::kNone) return ended(id, cause);
  jobs_.start(
      {is_write, file, piece.local, piece.address, [this, id](Cause why) { ended(id, why); }, id});
}

void FileBackend::give_up(uint32_t, uint64_t piece) {
  if (opening_.erase(piece) != 0 || jobs_.take_back(piece)) ended(piece, Cause::kCancelled);
}

}  // namespace braid::transfer
