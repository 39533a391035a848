#include "transfer/backends/file.h"

#include <utility>

namespace braid::transfer {

void FileBackend::post(uint32_t, const Piece& piece) {
  const bool is_write = piece.operation == Operation::kWrite;
  OpenFilePointer file;
  Cause cause = exports_.use(piece.file, is_write ? kMayWrite : kMayRead, file);
  if (cause == Cause::kNone && is_write &&
      !is_within_file_limit(piece.address + piece.local.size()))
    cause = Cause::kFileError;
  if (cause != Cause::kNone) return tell(piece.id, cause);
  begin();
  const uint64_t id = piece.id;
  jobs_.start({is_write, std::move(file), piece.local, piece.address,
               [this, id](Cause why) { ended(id, why); }});
}

}  // namespace braid::transfer
