// Private memory that GPUs and networks read and write by themselves. It begins where a huge page
// may, and is of huge pages if the kernel has some: they are fewer to pin. A child process does not
// inherit it: devices know the pages, so these must stay the parent's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

#include "base/status.h"
#include "host/shared_pages.h"

namespace braid {

inline constexpr uint64_t kHugePageBytes = uint64_t{2} << 20;

struct HugePagesKind {
  bool is_reserved = true;  ///< as MappedPages::map_private
  int node = -1;            ///< as MappedPages::prefer_node
};

/// The destructor unmaps them.
class HugePages {
 public:
  HugePages() = default;
  /// Pages of zeros. Each is allocated when it is touched or pinned.
  static Result<HugePages> map(size_t size_bytes, const HugePagesKind& kind = {});

  std::span<std::byte> bytes() const { return bytes_; }
  /// Leaves the pages mapped for ever: something may still use them.
  void leave_mapped();
  /// Gives the pages back, but not their addresses: somebody still takes them for these pages.
  void leave_addresses();

 private:
  HugePages(MappedPages pages, size_t size_bytes);

  MappedPages pages_;
  std::span<std::byte> bytes_;  // from the first huge page on
};

}  // namespace braid
