// Memory that the library allocates for its callers: pages of zeros, large ones if the kernel has
// them. All are touched, on the NUMA node of most rails while it has room.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <utility>

#include "base/try.h"
#include "transfer/sharing/pages.h"

namespace braid::transfer {

struct Allocation {
  Pages pages;
  File file = {};  ///< the file that peers map; none: they cannot map it
};

inline Result<Allocation> allocate_privately(size_t size_bytes, int node) {
  BRAID_LET(pages, Pages::map(-1, size_bytes, true));
  (void)madvise(pages.memory(), size_bytes, MADV_HUGEPAGE);
  pages.prefer_node(node);
  constexpr size_t kPageBytes = 4096;
  for (size_t i = 0; i < size_bytes; i += kPageBytes)
    static_cast<volatile char*>(pages.memory())[i] = 0;
  return Allocation{std::move(pages)};
}

/// Allocates shared memory if that is asked for and the kernel can, otherwise private memory.
/// `node`: see Pages::prefer_node.
inline Result<Allocation> allocate(size_t size_bytes, bool is_shared, bool may_peers_write,
                                   int node) {
  if (!is_shared) return allocate_privately(size_bytes, node);
  Result<SharedPages> made = make_shared_pages(size_bytes, may_peers_write, node);
  if (!made.ok()) return allocate_privately(size_bytes, node);
  return Allocation{std::move(made.value().pages), std::move(made.value().file)};
}

}  // namespace braid::transfer
