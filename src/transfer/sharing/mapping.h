// The peer's side of sharing: maps memory of another process of this host. Memory that does not
// match its owner's description is left out, and the rails carry its slices.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "fabric/seal.h"
#include "transfer/description.h"
#include "transfer/sharing/sharing.h"

namespace braid::transfer {

/// Writable only where the owner allows it.
class MappedRange {
 public:
  MappedRange(const SharedMemory& memory, MappedPages pages,
              std::shared_ptr<const MappedPages> board)
      : memory_(memory), pages_(std::move(pages)), board_(std::move(board)) {}

  const SharedMemory& memory() const { return memory_; }
  /// Whether its owner still has it registered.
  bool is_open() const {
    const auto* board = static_cast<const Board*>(board_->memory());
    return board->buffers[memory_.slot].load(std::memory_order_seq_cst) == memory_.buffer;
  }
  bool holds(uint64_t address, uint64_t size_bytes) const {
    return address >= memory_.address && address - memory_.address < memory_.size_bytes &&
           size_bytes <= memory_.size_bytes - (address - memory_.address);
  }
  std::byte* at(uint64_t address) const {
    return static_cast<std::byte*>(pages_.memory()) + (address - memory_.address);
  }

 private:
  SharedMemory memory_;
  MappedPages pages_;
  std::shared_ptr<const MappedPages> board_;
};

struct MappedMemory {
  std::vector<MappedRange> ranges;
  uint64_t refused = 0;  ///< memory that the owner handed out, but that was not mapped
};

/// Asks the owner for all memory that it shares. Blocks the caller's thread until `end_ns` of
/// CLOCK_MONOTONIC at most. The result is empty if the owner shares nothing, if this process cannot
/// see whether the owner's process has ended, or if the two run as different users.
MappedMemory map_memory_of(const Description& owner, const fabric::Origin& self,
                           const fabric::Secret& secret, uint64_t end_ns);

}  // namespace braid::transfer
