#include "transfer/backends/memory.h"

namespace braid::transfer {

void MemoryBackend::post(uint32_t, const Piece& piece) {
  const Rights right = piece.operation == Operation::kWrite ? kMayWrite : kMayRead;
  const Buffer* buffer = nullptr;
  const Cause cause = check(buffers_, piece.address, piece.local.size(), right, buffer);
  if (cause == Cause::kNone)
    copy(piece, buffer->memory.data() + (piece.address - buffer->address()));
  tell(piece.id, cause);
}

}  // namespace braid::transfer
