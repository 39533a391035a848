// Pages that processes of one host share, as files without a name (memfd_create). Their size is
// sealed, so that a process that maps them never finds a page gone. If peers may not write, the
// kernel lets only the owner map the pages writable, however the file is opened again.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

#include "base/status.h"
#include "host/file.h"

namespace braid {

/// Mapped pages; the destructor unmaps them. A child process does not inherit shared ones.
class MappedPages {
 public:
  MappedPages() = default;
  /// Private pages of zeros. If they are not reserved, the kernel does not count ahead what it may
  /// have to allocate (MAP_NORESERVE).
  static Result<MappedPages> map_private(size_t size_bytes, bool is_reserved = true);
  /// The file's pages from `offset_bytes` on, a multiple of the page size.
  static Result<MappedPages> map_shared(int file, uint64_t offset_bytes, size_t size_bytes,
                                        bool is_writable);
  ~MappedPages();
  MappedPages(MappedPages&& other) noexcept
      : memory_(std::exchange(other.memory_, nullptr)), size_bytes_(other.size_bytes_) {}
  MappedPages& operator=(MappedPages&& other) noexcept {
    std::swap(memory_, other.memory_);
    std::swap(size_bytes_, other.size_bytes_);
    return *this;
  }
  /// What is touched first from now on lies on that NUMA node, by the kernel's number, while the
  /// node has room. -1, or a kernel without NUMA: on the node of the thread that touches it.
  void prefer_node(int node) const;
  /// Leaves the pages mapped for ever.
  void leave_mapped() { memory_ = nullptr; }
  /// Null: nothing is mapped.
  void* memory() const { return memory_; }
  std::span<std::byte> bytes() const { return {static_cast<std::byte*>(memory_), size_bytes_}; }

 private:
  MappedPages(void* memory, size_t size_bytes) : memory_(memory), size_bytes_(size_bytes) {}
  static Result<MappedPages> map(int file, uint64_t offset_bytes, size_t size_bytes, int protection,
                                 int flags);

  void* memory_ = nullptr;
  size_t size_bytes_ = 0;
};

struct SharedPages {
  MappedPages pages;  ///< writable
  /// For peers. A child process inherits it, and so keeps the memory until it calls exec or closes
  /// the file.
  File file;
};

struct SharedPagesKind {
  const char* name;  ///< in /proc/PID/maps
  bool may_peers_write = true;
  /// All pages are allocated at once. False: each when it is touched.
  bool is_filled = true;
  int node = -1;  ///< as MappedPages::prefer_node
};

/// The owner's side. An error if the kernel has no such files, or no memory.
Result<SharedPages> make_shared_pages(size_t size_bytes, const SharedPagesKind& kind);
/// A peer's side: maps part of the file that it received, if it is such a file and has that part.
/// `offset_bytes` is a multiple of the page size.
Result<MappedPages> map_shared_pages(const File& file, uint64_t offset_bytes, uint64_t size_bytes,
                                     bool is_writable);

}  // namespace braid
