#include "library/overlap.h"

#include <algorithm>
#include <array>
#include <bit>
#include <utility>

namespace braid::library {
namespace {

constexpr int kDigitBits = 8;
constexpr size_t kDigits = size_t{1} << kDigitBits;
// Fewer are sorted sooner by comparing them.
constexpr size_t kFewestForDigits = 128;

template <typename Ranges, typename Begin>
bool ascend(const Ranges& ranges, const Begin& begin) {
  return std::adjacent_find(ranges.begin(), ranges.end(), [&](const auto& one, const auto& next) {
           return begin(next) < begin(one) + one.size_bytes;
         }) == ranges.end();
}

}  // namespace

Error OverlapCheck::check(std::span<const Copy> copies) {
  if (ascend(copies, [](const Copy& copy) { return copy.destination; })) return Error::none();
  ranges_.clear();
  for (const Copy& copy : copies) ranges_.push_back({copy.destination, copy.size_bytes});
  sort();
  return ascend(ranges_, [](const Range& range) { return range.begin; })
             ? Error::none()
             : Error::argument("a byte is in two destinations of the batch, which have no order");
}

// By digits, the lowest first, and only by those in which addresses differ: blocks of a cache that
// lies in one allocation differ in few.
void OverlapCheck::sort() {
  const auto is_before = [](const Range& one, const Range& other) {
    return one.begin < other.begin;
  };
  if (ranges_.size() < kFewestForDigits)
    return std::sort(ranges_.begin(), ranges_.end(), is_before);
  uint64_t differing = 0;
  for (const Range& range : ranges_) differing |= range.begin ^ ranges_.front().begin;
  spare_.resize(ranges_.size());
  const int end_bit = 64 - std::countl_zero(differing);
  for (int bit = std::countr_zero(differing); bit < end_bit; bit += kDigitBits) sort_by_digit(bit);
}

void OverlapCheck::sort_by_digit(int first_bit) {
  const auto digit = [first_bit](const Range& range) {
    return (range.begin >> first_bit) & (kDigits - 1);
  };
  std::array<uint32_t, kDigits> places{};
  for (const Range& range : ranges_) ++places[digit(range)];
  uint32_t place = 0;
  for (uint32_t& count : places) place += std::exchange(count, place);
  for (const Range& range : ranges_) spare_[places[digit(range)]++] = range;
  ranges_.swap(spare_);
}

}  // namespace braid::library
