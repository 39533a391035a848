// Whether a byte lies in two destinations of a batch, whose copies have no order.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "library/copy_list.h"
#include "library/error.h"

namespace braid::library {

/// Keeps its memory from check to check. Not for several threads.
class OverlapCheck {
 public:
  /// Fails when two destinations overlap. Takes time linear in the number of copies, in whatever
  /// order they come: the slots of a KV cache come in any.
  Error check(std::span<const Copy> copies);

 private:
  struct Range {
    uint64_t begin;
    uint64_t size_bytes;
  };

  void sort();
  void sort_by_digit(int first_bit);

  std::vector<Range> ranges_;
  std::vector<Range> spare_;
};

}  // namespace braid::library
