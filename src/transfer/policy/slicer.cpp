#include "transfer/policy/slicer.h"

#include <algorithm>
#include <utility>

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
  return round_up(wanted, std::max<uint64_t>(1, alignment_bytes));
}

Slicer::Slicer(uint64_t size_bytes, Borders borders, const SliceRules& rules)
    : borders_(std::move(borders)), size_bytes_(size_bytes) {
  borders_.alignment_bytes = std::max<uint64_t>(1, borders_.alignment_bytes);
  slice_bytes_ = slice_bytes(size_bytes, borders_.alignment_bytes, rules);
}

Span Slicer::peek(uint64_t bytes_max) const {
  const uint64_t unit = borders_.alignment_bytes;
  const uint64_t most = std::max(unit, bytes_max - bytes_max % unit);
  const uint64_t wanted = std::min(slice_bytes_, most);
  uint64_t left = size_bytes_ - offset_;
  // A border may be the end or the beginning of the request.
  for (size_t i = next_border_; i < borders_.at.size(); ++i) {
    if (borders_.at[i] <= offset_) continue;
    left = std::min(left, borders_.at[i] - offset_);
    break;
  }
  // A short rest joins the slice before it: alone it would cost as much as a whole slice.
  return {offset_, left <= wanted + wanted / 4 ? left : wanted};
}

void Slicer::take(const Span& slice) {
  offset_ = slice.offset + slice.size_bytes;
  while (next_border_ < borders_.at.size() && borders_.at[next_border_] <= offset_) ++next_border_;
}

}  // namespace braid::transfer
