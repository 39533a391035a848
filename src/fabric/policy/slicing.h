// The number of slices of a write: pure functions of its size. A slice is the unit that a rail
// pulls, and carries one immediate. So both sides compute the number of immediates of a write,
// independently of the rails' number and speed.
#pragma once

#include <cstdint>

namespace braid::fabric {

/// Both sides of a connection have the same; an Address carries it.
struct Slicing {
  uint64_t slice_bytes = 512 << 10;  ///< at least 1
  uint64_t slices_max = 4096;        ///< at least 1; slices of larger writes are larger
  bool operator==(const Slicing&) const = default;
};

/// The size of every slice of a write but the last. Zero for a write of zero bytes.
uint64_t slice_bytes(uint64_t size_bytes, const Slicing& slicing = {});

/// A write of zero bytes makes no immediate.
uint64_t immediates_of_write(uint64_t size_bytes, const Slicing& slicing = {});

/// Each page is cut as a write of its own. No pages, or pages of zero bytes, make no immediate.
uint64_t immediates_of_pages(uint64_t page_bytes, uint64_t page_count, const Slicing& slicing = {});

}  // namespace braid::fabric
