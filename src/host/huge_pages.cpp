#include "host/huge_pages.h"

#include <sys/mman.h>

#include "base/try.h"

namespace braid {

Result<HugePages> HugePages::map(size_t size_bytes, const HugePagesKind& kind) {
  BRAID_LET(pages, MappedPages::map_private(size_bytes + kHugePageBytes, kind.is_reserved));
  const std::span<std::byte> all = pages.bytes();
  (void)madvise(all.data(), all.size(), MADV_HUGEPAGE);
  (void)madvise(all.data(), all.size(), MADV_DONTFORK);
  pages.prefer_node(kind.node);
  return HugePages(std::move(pages), size_bytes);
}

HugePages::HugePages(MappedPages pages, size_t size_bytes) : pages_(std::move(pages)) {
  const uint64_t beyond_bytes = reinterpret_cast<uintptr_t>(pages_.memory()) % kHugePageBytes;
  bytes_ = pages_.bytes().subspan((kHugePageBytes - beyond_bytes) % kHugePageBytes, size_bytes);
}

void HugePages::leave_mapped() {
  pages_.leave_mapped();
  bytes_ = {};
}

void HugePages::leave_addresses() {
  const std::span<std::byte> all = pages_.bytes();
  mmap(all.data(), all.size(), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED,
       -1, 0);
  leave_mapped();
}

}  // namespace braid
