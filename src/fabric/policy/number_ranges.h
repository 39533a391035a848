// A set of numbers that come nearly in order, kept as ranges: its memory grows only with the gaps.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>

namespace braid::fabric {

class NumberRanges {
 public:
  bool contains(uint64_t number) const {
    const auto after = ranges_.upper_bound(number);
    return after != ranges_.begin() && number <= std::prev(after)->second;
  }
  void add(uint64_t number) {
    if (contains(number)) return;
    auto after = ranges_.upper_bound(number);
    uint64_t last = number;
    if (after != ranges_.end() && after->first == number + 1) {
      last = after->second;
      after = ranges_.erase(after);
    }
    if (after != ranges_.begin() && std::prev(after)->second + 1 == number)
      std::prev(after)->second = last;
    else
      ranges_[number] = last;
  }
  void erase_below(uint64_t number) {
    while (!ranges_.empty() && ranges_.begin()->first < number) {
      const uint64_t last = ranges_.begin()->second;
      ranges_.erase(ranges_.begin());
      if (last >= number) ranges_[number] = last;
    }
  }
  size_t range_count() const { return ranges_.size(); }

 private:
  std::map<uint64_t, uint64_t> ranges_;  // the last number of a range, by its first
};

}  // namespace braid::fabric
