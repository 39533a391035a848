#include "emulator/model/arena.h"

#include <sys/mman.h>

#include <algorithm>
#include <iterator>

namespace braid::emulator {
namespace {

// cuMemAlloc's alignment, and its granularity once an allocation has blocks of its own.
constexpr uint64_t kSmallAlignment = 512;
constexpr uint64_t kLargeAlignment = 2u << 20;
constexpr uint64_t kPieceBytes = uint64_t{4} << 30;

// The next multiple of what an allocation of `size_bytes` is aligned to.
uint64_t aligned(uint64_t address, uint64_t size_bytes) {
  const uint64_t unit = size_bytes >= kLargeAlignment ? kLargeAlignment : kSmallAlignment;
  return (address + unit - 1) / unit * unit;
}

void* map(uint64_t size_bytes, int protection) {
  void* at =
      mmap(nullptr, size_bytes, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return at == MAP_FAILED ? nullptr : at;
}

}  // namespace

uint64_t Arena::footprint_bytes(uint64_t size_bytes) { return aligned(size_bytes, size_bytes); }

std::byte* Arena::bytes(uint64_t address) const {
  const auto& [first, byte] = *std::prev(pieces_.upper_bound(address));
  return byte + (address - first);
}

// Between two pieces there are always addresses that neither uses, so that holes never join there.
bool Arena::add_piece(uint64_t size_bytes) {
  const uint64_t size = std::max(size_bytes, kPieceBytes);
  const uint64_t span = size + kLargeAlignment;
  void* addresses = map(span, PROT_NONE);
  if (addresses == nullptr) return false;
  void* backing = map(span, PROT_READ | PROT_WRITE);
  if (backing == nullptr) {
    munmap(addresses, span);
    return false;
  }
  madvise(backing, span, MADV_DONTDUMP);
  madvise(backing, span, MADV_HUGEPAGE);
  const uint64_t first = aligned(reinterpret_cast<uint64_t>(addresses), kLargeAlignment);
  // The same offset within a large page on both sides, so that large pages serve large memory.
  pieces_[first] =
      reinterpret_cast<std::byte*>(aligned(reinterpret_cast<uint64_t>(backing), kLargeAlignment));
  holes_[first] = size;
  return true;
}

bool Arena::charge(uint64_t size_bytes) {
  if (size_bytes > capacity_ - used_) return false;
  used_ += size_bytes;
  return true;
}

std::optional<uint64_t> Arena::take_hole(uint64_t size_bytes) {
  for (auto hole = holes_.begin(); hole != holes_.end(); ++hole) {
    const auto [start, length] = *hole;
    const uint64_t address = aligned(start, size_bytes);
    if (address - start >= length || length - (address - start) < size_bytes) continue;
    const uint64_t end = address + size_bytes;
    holes_.erase(hole);
    if (address > start) holes_[start] = address - start;
    if (end < start + length) holes_[end] = start + length - end;
    return address;
  }
  return std::nullopt;
}

std::optional<uint64_t> Arena::allocate(uint64_t size_bytes) {
  if (size_bytes > capacity_) return std::nullopt;
  const uint64_t size = footprint_bytes(size_bytes);
  if (!charge(size)) return std::nullopt;
  std::optional<uint64_t> address = take_hole(size);
  if (!address && add_piece(size)) address = take_hole(size);
  if (!address) refund(size);
  return address;
}

void Arena::release(uint64_t address, uint64_t size_bytes) {
  const uint64_t size = footprint_bytes(size_bytes);
  // Gives the pages back; they read 0 when used again. Only whole pages can be given back, so small
  // allocations keep their old bytes, as a GPU's memory does.
  constexpr uint64_t kPage = 4096;
  const uint64_t first = (address + kPage - 1) / kPage * kPage;
  const uint64_t last = (address + size) / kPage * kPage;
  if (last > first) madvise(bytes(first), last - first, MADV_DONTNEED);
  refund(size);
  const auto next = holes_.emplace(address, size).first;
  const auto after = std::next(next);
  if (after != holes_.end() && next->first + next->second == after->first) {
    next->second += after->second;
    holes_.erase(after);
  }
  if (next == holes_.begin()) return;
  const auto before = std::prev(next);
  if (before->first + before->second == next->first) {
    before->second += next->second;
    holes_.erase(next);
  }
}

}  // namespace braid::emulator
