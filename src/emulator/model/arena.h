// One GPU's memory: addresses that the CPU may not touch, whose bytes are elsewhere. A program that
// dereferences a device pointer faults, as on hardware. Address space is taken in pieces as needed:
// the whole memory of eight GPUs, twice over, is more than a process under ThreadSanitizer has. The
// world's lock covers it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>

namespace braid::emulator {

class Arena {
 public:
  explicit Arena(uint64_t capacity_bytes) : capacity_(capacity_bytes) {}
  Arena(Arena&&) = default;

  /// An address for `size_bytes` (at least 1), or nothing when the GPU is full.
  std::optional<uint64_t> allocate(uint64_t size_bytes);
  /// Gives back what `allocate` returned, with the same size.
  void release(uint64_t address, uint64_t size_bytes);
  /// The part of the capacity that an allocation of that size takes.
  static uint64_t footprint_bytes(uint64_t size_bytes);
  /// Accounts for memory without an address: that of a context. False if the GPU is full.
  bool charge(uint64_t size_bytes);
  void refund(uint64_t size_bytes) { used_ -= size_bytes; }

  /// Where the bytes of a device address are.
  std::byte* bytes(uint64_t address) const;

  uint64_t capacity_bytes() const { return capacity_; }
  uint64_t free_bytes() const { return capacity_ - used_; }

 private:
  bool add_piece(uint64_t size_bytes);
  std::optional<uint64_t> take_hole(uint64_t size_bytes);

  uint64_t capacity_;
  uint64_t used_ = 0;
  std::map<uint64_t, std::byte*> pieces_;  // first address -> its byte
  std::map<uint64_t, uint64_t> holes_;     // address -> size; never across pieces
};

}  // namespace braid::emulator
