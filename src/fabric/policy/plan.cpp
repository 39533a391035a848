#include "fabric/policy/plan.h"

#include <algorithm>
#include <string>
#include <utility>

namespace braid::fabric {
namespace {

bool fits(uint64_t offset_bytes, uint64_t size_bytes, uint64_t region_bytes) {
  return offset_bytes <= region_bytes && size_bytes <= region_bytes - offset_bytes;
}

/// False as well if the offset does not fit 64 bits.
bool fits(const Pages& pages, uint32_t index, uint64_t page_bytes, uint64_t region_bytes) {
  uint64_t offset_bytes = 0;
  if (__builtin_mul_overflow(uint64_t{index}, pages.stride_bytes, &offset_bytes)) return false;
  if (__builtin_add_overflow(offset_bytes, pages.offset_bytes, &offset_bytes)) return false;
  return fits(offset_bytes, page_bytes, region_bytes);
}

Status check(const char* side, const Pages& pages, uint64_t page_bytes, uint64_t region_bytes) {
  for (size_t i = 0; i < pages.indices.size(); ++i)
    if (!fits(pages, pages.indices[i], page_bytes, region_bytes))
      return Status::error("page " + std::to_string(i) + " of the " + side + ", index " +
                           std::to_string(pages.indices[i]) + ", lies outside its " +
                           std::to_string(region_bytes) + " bytes");
  return {};
}

uint64_t page_offset(const Pages& pages, uint64_t page) {
  return pages.offset_bytes + pages.indices[page] * pages.stride_bytes;
}

}  // namespace

Result<Plan> Plan::single(const Slice& whole, uint64_t source_bytes, uint64_t target_bytes,
                          const Slicing& slicing) {
  if (!fits(whole.source_offset_bytes, whole.size_bytes, source_bytes))
    return Status::error("the bytes to write lie outside their region of " +
                         std::to_string(source_bytes) + " bytes");
  if (!fits(whole.target_offset_bytes, whole.size_bytes, target_bytes))
    return Status::error("the target lies outside the " + std::to_string(target_bytes) +
                         " bytes that were granted");
  Plan plan(whole.size_bytes, 1, slicing);
  plan.source_offset_bytes_ = whole.source_offset_bytes;
  plan.target_offset_bytes_ = whole.target_offset_bytes;
  return plan;
}

Result<Plan> Plan::paged(uint64_t page_bytes, Pages source, Pages target, uint64_t source_bytes,
                         uint64_t target_bytes, const Slicing& slicing) {
  if (source.indices.size() != target.indices.size())
    return Status::error("the lists of pages differ in length");
  if (Status wrong = check("source", source, page_bytes, source_bytes); !wrong.ok()) return wrong;
  if (Status wrong = check("target", target, page_bytes, target_bytes); !wrong.ok()) return wrong;
  Plan plan(page_bytes, source.indices.size(), slicing);
  plan.lists_ = std::make_unique<Lists>(Lists{std::move(source), std::move(target), {}});
  return plan;
}

Result<Plan> Plan::list(std::vector<Slice> slices, uint64_t source_bytes, uint64_t target_bytes,
                        const Slicing& slicing) {
  for (const Slice& slice : slices) {
    if (slice.size_bytes == 0 || slice.size_bytes > slicing.slice_bytes)
      return Status::error("a slice of a list has 1 to " + std::to_string(slicing.slice_bytes) +
                           " bytes");
    if (!fits(slice.source_offset_bytes, slice.size_bytes, source_bytes) ||
        !fits(slice.target_offset_bytes, slice.size_bytes, target_bytes))
      return Status::error("a slice of the list lies outside its " + std::to_string(source_bytes) +
                           " or " + std::to_string(target_bytes) + " bytes");
  }
  Plan plan;
  plan.page_count_ = slices.size();
  plan.slices_per_page_ = 1;
  plan.lists_ = std::make_unique<Lists>(Lists{{}, {}, std::move(slices)});
  return plan;
}

Plan::Plan(uint64_t page_bytes, uint64_t page_count, const Slicing& slicing)
    : page_bytes_(page_bytes),
      page_count_(page_count),
      slice_bytes_(fabric::slice_bytes(page_bytes, slicing)),
      slices_per_page_(immediates_of_write(page_bytes, slicing)) {}

Slice Plan::slice(uint64_t index) const {
  if (lists_ != nullptr && !lists_->slices.empty()) return lists_->slices[index];
  const uint64_t page = slices_per_page_ == 1 ? index : index / slices_per_page_;
  const uint64_t first = (index - page * slices_per_page_) * slice_bytes_;
  const uint64_t size_bytes = std::min(slice_bytes_, page_bytes_ - first);
  if (lists_ == nullptr)
    return {source_offset_bytes_ + first, target_offset_bytes_ + first, size_bytes};
  return {page_offset(lists_->source, page) + first, page_offset(lists_->target, page) + first,
          size_bytes};
}

}  // namespace braid::fabric
