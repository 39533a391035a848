// Memory that the library allocates for its callers: pages of zeros, large ones where the kernel
// has them. Touched in the allocating thread, so that it lies on that thread's NUMA node.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <utility>

#include "base/try.h"
#include "transfer/sharing/pages.h"

namespace braid::transfer {

struct Allocation {
  Pages pages;
  File file = {};  ///< for peers to map it; none: they cannot
};

inline Result<Allocation> allocate_privately(size_t size_bytes) {
  BRAID_LET(pages, Pages::map(-1, size_bytes, true));
  (void)madvise(pages.memory(), size_bytes, MADV_HUGEPAGE);
  constexpr size_t kPageBytes = 4096;
  for (size_t i = 0; i < size_bytes; i += kPageBytes)
    static_cast<volatile char*>(pages.memory())[i] = 0;
  return Allocation{std::move(pages)};
}

/// Shared where the kernel can, and else private.
inline Result<Allocation> allocate(size_t size_bytes, bool is_shared, bool may_peers_write) {
  if (!is_shared) return allocate_privately(size_bytes);
  Result<SharedPages> made = make_shared_pages(size_bytes, may_peers_write);
  if (!made.ok()) return allocate_privately(size_bytes);
  return Allocation{std::move(made.value().pages), std::move(made.value().file)};
}

}  // namespace braid::transfer
