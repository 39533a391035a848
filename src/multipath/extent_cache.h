// The pieces of memory that hold the segments of one batch, as the driver has told. Segments come
// in runs, or take turns among the allocations (the blocks of a KV cache, layer by layer). So a
// search looks first at the last piece, then at the piece that once followed it, then does a binary
// search. For one call only: the answers may be wrong at the next.
//
// Allocates nothing. A few kilobytes that are not cleared: a contiguous copy pays nothing for them.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "multipath/pointer_facts.h"

namespace braid::multipath {

class ExtentCache {
 public:
  /// A KV cache has up to two allocations for each of some hundred layers. Allocations beyond this
  /// number cost a question for each run of segments.
  static constexpr size_t kMost = 256;

  /// The piece that holds the address; null if it is not known. Valid until the next `add`.
  const Extent* find(CUdeviceptr address) {
    if (count_ == 0) return nullptr;
    if (last_.holds(address, 1)) return &last_;
    const size_t next = at_ + 1 < count_ ? at_ + 1 : 0;
    const size_t found = known_[next].holds(address) ? next : search(address);
    if (found == count_) return nullptr;
    at_ = found;
    last_ = {known_[at_].begin, known_[at_].size_bytes, known_[at_].is_mapping};
    return &last_;
  }

  /// Adds the piece of an address that `find` did not know.
  const Extent& add(const Extent& extent) {
    last_ = extent;
    if (count_ == kMost) return last_;
    const auto place = std::upper_bound(
        by_address_.begin(), by_address_.begin() + count_, extent.begin,
        [this](CUdeviceptr begin, uint16_t other) { return begin < known_[other].begin; });
    std::copy_backward(place, by_address_.begin() + count_, by_address_.begin() + count_ + 1);
    *place = static_cast<uint16_t>(count_);
    at_ = count_;
    known_[count_++] = {extent.begin, extent.size_bytes, extent.is_mapping};
    return last_;
  }

 private:
  // An Extent that is not cleared when it is made.
  struct Entry {
    CUdeviceptr begin;
    size_t size_bytes;
    bool is_mapping;
    bool holds(CUdeviceptr address) const { return address - begin < size_bytes; }
  };

  size_t search(CUdeviceptr address) const {
    const auto after = std::upper_bound(
        by_address_.begin(), by_address_.begin() + count_, address,
        [this](CUdeviceptr wanted, uint16_t other) { return wanted < known_[other].begin; });
    if (after == by_address_.begin()) return count_;
    const size_t found = *(after - 1);
    return known_[found].holds(address) ? found : count_;
  }

  std::array<Entry, kMost> known_;          // in the order in which they came
  std::array<uint16_t, kMost> by_address_;  // the same, sorted
  size_t count_ = 0;
  size_t at_ = 0;  // of the last one, unless there was no room for it
  Extent last_;
};

}  // namespace braid::multipath
