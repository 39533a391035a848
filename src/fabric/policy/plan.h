// The slices of one transfer: a list that is computed, not stored. Pure: it knows no rails, since
// any free rail pulls the next slice.
// Source: 3.3 of the paper, submit_single_write and submit_paged_writes.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/status.h"
#include "fabric/policy/slicing.h"

namespace braid::fabric {

/// Page i begins at `offset_bytes + indices[i] * stride_bytes` of its region.
struct Pages {
  std::vector<uint32_t> indices;
  uint64_t stride_bytes = 0;
  uint64_t offset_bytes = 0;
};

struct Slice {
  uint64_t source_offset_bytes = 0;
  uint64_t target_offset_bytes = 0;
  uint64_t size_bytes = 0;
  bool operator==(const Slice&) const = default;
};

class Plan {
 public:
  Plan() = default;  // no slices

  /// The sizes are those of the regions. An error says which bytes lie outside.
  static Result<Plan> single(const Slice& whole, uint64_t source_bytes, uint64_t target_bytes,
                             const Slicing& slicing);
  /// Page i of the source goes to page i of the target.
  static Result<Plan> paged(uint64_t page_bytes, Pages source, Pages target, uint64_t source_bytes,
                            uint64_t target_bytes, const Slicing& slicing);

  /// The given slices, uncut: each has at least 1 byte, and is no larger than a slice of a write.
  static Result<Plan> list(std::vector<Slice> slices, uint64_t source_bytes, uint64_t target_bytes,
                           const Slicing& slicing);

  uint64_t slice_count() const { return slices_per_page_ * page_count_; }
  /// `index` is below slice_count().
  Slice slice(uint64_t index) const;

 private:
  /// What only some plans have. It is kept apart, since a plan moves from hand to hand, and a
  /// single write needs none of it.
  struct Lists {
    Pages source;
    Pages target;
    std::vector<Slice> slices;  // Plan::list only: then there are no pages
  };
  Plan(uint64_t page_bytes, uint64_t page_count, const Slicing& slicing);

  uint64_t page_bytes_ = 0;
  uint64_t page_count_ = 0;
  uint64_t slice_bytes_ = 0;
  uint64_t slices_per_page_ = 0;
  uint64_t source_offset_bytes_ = 0;  // of a single write
  uint64_t target_offset_bytes_ = 0;
  std::unique_ptr<const Lists> lists_;  // null: a single write, which is one page
};

}  // namespace braid::fabric
