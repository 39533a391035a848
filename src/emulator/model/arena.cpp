#include "emulator/model/arena.h"

#include <sys/mman.h>

namespace braid::emulator {
namespace {

// cuMemAlloc's alignment, and its granularity once an allocation has blocks of its own.
constexpr uint64_t kSmallAlignment = 512;
constexpr uint64_t kLargeAlignment = 2u << 20;

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

// Twice the capacity in addresses, so that holes never make an allocation fail that would fit.
bool Arena::reserve() {
  if (backing_ != nullptr) return true;
  const uint64_t span = 2 * capacity_ + kLargeAlignment;
  void* addresses = map(span, PROT_NONE);
  void* backing = map(span, PROT_READ | PROT_WRITE);
  if (addresses == nullptr || backing == nullptr) return false;
  madvise(backing, span, MADV_DONTDUMP);
  madvise(backing, span, MADV_HUGEPAGE);
  const uint64_t start = reinterpret_cast<uint64_t>(addresses);
  base_ = aligned(start, kLargeAlignment);
  backing_ = static_cast<std::byte*>(backing);
  // The same offset within a large page on both sides, so that large pages serve large memory.
  const uint64_t shift = aligned(reinterpret_cast<uint64_t>(backing), kLargeAlignment) -
                         reinterpret_cast<uint64_t>(backing);
  backing_ += shift;
  holes_[base_] = 2 * capacity_;
  return true;
}

bool Arena::charge(uint64_t size_bytes) {
  if (size_bytes > capacity_ - used_) return false;
  used_ += size_bytes;
  return true;
}

std::optional<uint64_t> Arena::allocate(uint64_t size_bytes) {
  if (size_bytes > capacity_ || !reserve()) return std::nullopt;
  const uint64_t size = footprint_bytes(size_bytes);
  if (!charge(size)) return std::nullopt;
  for (auto hole = holes_.begin(); hole != holes_.end(); ++hole) {
    const auto [start, length] = *hole;
    const uint64_t address = aligned(start, size);
    if (address - start >= length || length - (address - start) < size) continue;
    holes_.erase(hole);
    if (address > start) holes_[start] = address - start;
    if (address + size < start + length) holes_[address + size] = start + length - address - size;
    return address;
  }
  refund(size);
  return std::nullopt;
}

void Arena::release(uint64_t address, uint64_t size_bytes) {
  const uint64_t size = footprint_bytes(size_bytes);
  // Gives the pages back; they read 0 when used again. Only whole pages can be given back, so small
  // allocations keep their old bytes, as a GPU's memory does.
  constexpr uint64_t kPage = 4096;
  const uint64_t first = (address - base_ + kPage - 1) / kPage * kPage;
  const uint64_t last = (address - base_ + size) / kPage * kPage;
  if (last > first) madvise(backing_ + first, last - first, MADV_DONTNEED);
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
