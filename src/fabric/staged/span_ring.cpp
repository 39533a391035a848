#include "fabric/staged/span_ring.h"

namespace braid::fabric::staged {

std::optional<uint64_t> SpanRing::find_room(uint64_t size_bytes) const {
  if (spans_.empty()) return size_bytes <= size_bytes_ ? std::optional<uint64_t>(0) : std::nullopt;
  const uint64_t first = spans_.front().begin, last = spans_.back().end;
  const bool is_wrapped = spans_.back().begin < first;
  if (is_wrapped) return size_bytes <= first - last ? std::optional(last) : std::nullopt;
  if (size_bytes <= size_bytes_ - last) return last;
  return size_bytes <= first ? std::optional<uint64_t>(0) : std::nullopt;
}

std::optional<SpanRing::Span> SpanRing::take(uint64_t size_bytes) {
  const std::optional<uint64_t> begin = find_room(rounded(size_bytes));
  if (!begin) return std::nullopt;
  spans_.push_back({*begin, *begin + rounded(size_bytes), false});
  return Span{*begin, first_number_ + spans_.size() - 1};
}

void SpanRing::give_back(uint64_t number) {
  spans_[number - first_number_].is_free = true;
  for (; !spans_.empty() && spans_.front().is_free; ++first_number_) spans_.pop_front();
}

}  // namespace braid::fabric::staged
