// Memory that the library allocates for its callers: pages of zeros, large ones if the kernel has
// them. All are touched, on the NUMA node of most rails while it has room.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <utility>

#include "base/try.h"
#include "host/memory_left.h"
#include "host/shared_pages.h"

namespace braid {

struct Allocation {
  MappedPages pages;
  File file = {};  ///< the file that peers map; none: they cannot map it
};

/// `node`: see MappedPages::prefer_node.
inline Result<Allocation> allocate_privately(size_t size_bytes, int node) {
  BRAID_TRY(check_memory_left(size_bytes));
  BRAID_LET(pages, MappedPages::map_private(size_bytes));
  (void)madvise(pages.memory(), size_bytes, MADV_HUGEPAGE);
  pages.prefer_node(node);
  constexpr size_t kPageBytes = 4096;
  for (size_t i = 0; i < size_bytes; i += kPageBytes)
    static_cast<volatile char*>(pages.memory())[i] = 0;
  return Allocation{std::move(pages)};
}

/// Allocates memory of that kind if the kernel can, otherwise private memory.
inline Result<Allocation> allocate_shared(size_t size_bytes, const SharedPagesKind& kind) {
  Result<SharedPages> made = make_shared_pages(size_bytes, kind);
  if (!made.ok()) return allocate_privately(size_bytes, kind.node);
  return Allocation{std::move(made.value().pages), std::move(made.value().file)};
}

}  // namespace braid
