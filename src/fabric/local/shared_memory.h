// Host memory of this process that was allocated to be shared. Domains look up its file here, as
// they ask the driver for that of GPU memory. Threads: any.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "fabric/domain.h"
#include "host/shared_pages.h"

namespace braid::fabric::local {

/// Shared pages, which domains of this process can find while this object lives. It outlives all
/// regions in its memory.
class SharedMemory {
 public:
  /// `node`: see MappedPages::prefer_node.
  static Result<std::unique_ptr<SharedMemory>> allocate(size_t size_bytes, int node = -1);
  /// The memory that a file of make_shared_pages holds, mapped here.
  static Result<std::unique_ptr<SharedMemory>> open(File file, size_t size_bytes);
  ~SharedMemory();
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;

  MutableBytes bytes() const { return pages_.bytes(); }

 private:
  explicit SharedMemory(SharedPages pages);

  const MappedPages pages_;
};

struct FileRange {
  std::shared_ptr<const File> file;
  uint64_t offset_bytes = 0;
};
/// Nothing: the memory is not part of one such allocation.
std::optional<FileRange> find_shared(MutableBytes memory);

}  // namespace braid::fabric::local
