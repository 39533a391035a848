// Cuts a request into slices: lazily, since a batch may have hundreds of thousands of slices. Pure.
// Source: TENT, 3.3.1: at least 64 KB, a limit to their number, larger requests have larger slices.
#pragma once

#include <cstddef>
#include <cstdint>

namespace braid::transfer {

struct SliceRules {
  uint64_t slice_bytes_min = 64 << 10;  ///< at least 1
  /// The most slices of a request, unless slice_bytes_max requires more; at least 1.
  uint64_t slices_max = 64;
  /// A lost slice costs no more than this, and an urgent slice waits for no more than this.
  uint64_t slice_bytes_max = 16 << 20;
  /// The size of slices of a request that has one way: there is nothing to spread, and each slice
  /// has a cost.
  uint64_t lone_slice_bytes = 1 << 20;
};

struct Span {
  uint64_t offset = 0;
  uint64_t size_bytes = 0;
  bool operator==(const Span&) const = default;
};

/// The size of every slice that is not shortened by the request's end. `alignment_bytes`: of where
/// slices begin in the request; at least 1.
uint64_t slice_bytes(uint64_t size_bytes, uint64_t alignment_bytes, const SliceRules& rules);

class Slicer {
 public:
  Slicer(uint64_t size_bytes, uint64_t alignment_bytes, const SliceRules& rules);

  uint64_t left_bytes() const { return size_bytes_ - offset_; }
  bool is_at_end() const { return offset_ == size_bytes_; }
  /// The next slice, of at most about `bytes_max`. Not to be called at the end.
  Span peek(uint64_t bytes_max) const;
  /// Advances past a slice that `peek` returned.
  void take(const Span& slice) { offset_ = slice.offset + slice.size_bytes; }
  /// Drops the rest of the request.
  void stop() { offset_ = size_bytes_; }

 private:
  uint64_t size_bytes_;
  uint64_t alignment_bytes_;
  uint64_t slice_bytes_;
  uint64_t offset_ = 0;
};

}  // namespace braid::transfer
