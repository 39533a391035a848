#include "fabric/policy/slicing.h"

namespace braid::fabric {
namespace {

constexpr uint64_t kAlignmentBytes = 4096;

uint64_t divide_up(uint64_t total, uint64_t part) { return total / part + (total % part != 0); }

}  // namespace

uint64_t slice_bytes(uint64_t size_bytes, const Slicing& slicing) {
  if (size_bytes <= slicing.slice_bytes) return size_bytes;
  if (divide_up(size_bytes, slicing.slice_bytes) <= slicing.slices_max) return slicing.slice_bytes;
  const uint64_t even = divide_up(size_bytes, slicing.slices_max);
  if (even > size_bytes - kAlignmentBytes) return even;  // rounding up might not fit 64 bits
  return divide_up(even, kAlignmentBytes) * kAlignmentBytes;
}

uint64_t immediates_of_write(uint64_t size_bytes, const Slicing& slicing) {
  return size_bytes == 0 ? 0 : divide_up(size_bytes, slice_bytes(size_bytes, slicing));
}

uint64_t immediates_of_pages(uint64_t page_bytes, uint64_t page_count, const Slicing& slicing) {
  return immediates_of_write(page_bytes, slicing) * page_count;
}

}  // namespace braid::fabric
