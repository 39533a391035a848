#include "transfer/backends/file.h"

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
  if (cause != Cause::kNone) return tell(piece.id, cause);
  begin();
  const uint64_t id = piece.id;
  jobs_.start(
      {is_write, file, piece.local, piece.address, [this, id](Cause why) { ended(id, why); }});
}

}  // namespace braid::transfer
