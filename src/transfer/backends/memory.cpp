#include "transfer/backends/memory.h"

#include <cstring>
namespace braid::transfer {

void MemoryBackend::post(uint32_t, const Piece& piece) {
  const bool is_write = piece.operation == Operation::kWrite;
  const Buffer* buffer = nullptr;
  const Cause cause =
      check(buffers_, piece.address, piece.local.size(), is_write ? kMayWrite : kMayRead, buffer);
  if (cause == Cause::kNone) {
    std::byte* far = buffer->memory.data() + (piece.address - buffer->address());
    if (is_write)
      std::memmove(far, piece.local.data(), piece.local.size());
    else
      std::memmove(piece.local.data(), far, piece.local.size());
  }
  tell(piece.id, cause);
}

}  // namespace braid::transfer
