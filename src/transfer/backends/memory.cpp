#include "transfer/backends/memory.h"

#include <cstring>
#include <limits>

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
  events_.push_back(PieceEnd{piece.id, cause, false});
}

void MemoryBackend::probe(uint32_t, uint64_t id) {
  events_.push_back(PieceEnd{id, Cause::kNone, false});
}

void MemoryBackend::fence(uint32_t way) { events_.push_back(WayFenced{way}); }

bool MemoryBackend::step(uint64_t) { return !events_.empty(); }

uint64_t MemoryBackend::next_deadline_ns() const {
  return events_.empty() ? std::numeric_limits<uint64_t>::max() : 0;
}

}  // namespace braid::transfer
