#include "transfer/policy/slicer.h"

#include <algorithm>

namespace braid::transfer {
namespace {

uint64_t round_up(uint64_t size_bytes, uint64_t unit) {
  const uint64_t over = size_bytes % unit;
  return over == 0 ? size_bytes : size_bytes + (unit - over);
}

}  // namespace

uint64_t slice_bytes(uint64_t size_bytes, uint64_t alignment_bytes, const SliceRules& rules) {
  const uint64_t even =
      size_bytes / rules.slices_max + (size_bytes % rules.slices_max == 0 ? 0 : 1);
  const uint64_t wanted = std::max(std::min(even, rules.slice_bytes_max), rules.slice_bytes_min);
  return round_up(wanted, alignment_bytes);
}

Slicer::Slicer(uint64_t size_bytes, uint64_t alignment_bytes, const SliceRules& rules)
    : size_bytes_(size_bytes),
      alignment_bytes_(alignment_bytes),
      slice_bytes_(slice_bytes(size_bytes, alignment_bytes, rules)) {}

Span Slicer::peek(uint64_t bytes_max) const {
  const uint64_t unit = alignment_bytes_;
  const uint64_t most = std::max(unit, bytes_max - bytes_max % unit);
  const uint64_t wanted = std::min(slice_bytes_, most);
  const uint64_t left = left_bytes();
  // A short rest joins the slice before it: alone it would cost as much as a whole slice.
  return {offset_, left <= wanted + wanted / 4 ? left : wanted};
}

}  // namespace braid::transfer
