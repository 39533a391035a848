// Pages that processes of one host share, as files without a name (memfd_create). Their size is
// sealed, so that a process that maps them never finds a page gone. If peers may not write, the
// kernel lets only the owner map the pages writable, however the file is opened again.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include "base/status.h"
#include "host/file.h"
#include "transfer/codec.h"

namespace braid::transfer {

/// Mapped pages; the destructor unmaps them. A child process does not inherit them.
class Pages {
 public:
  Pages() = default;
  /// `file` -1: private pages of zeros. Otherwise the file's pages, shared.
  static Result<Pages> map(int file, size_t size_bytes, bool is_writable);
  ~Pages();
  Pages(Pages&& other) noexcept
      : memory_(std::exchange(other.memory_, nullptr)), size_bytes_(other.size_bytes_) {}
  Pages& operator=(Pages&& other) noexcept {
    std::swap(memory_, other.memory_);
    std::swap(size_bytes_, other.size_bytes_);
    return *this;
  }
  /// What is touched first from now on lies on that NUMA node, by the kernel's number, while the
  /// node has room. -1, or a kernel without NUMA: on the node of the thread that touches it.
  void prefer_node(int node) const;
  void* memory() const { return memory_; }
  MutableBytes bytes() const { return {static_cast<std::byte*>(memory_), size_bytes_}; }

 private:
  Pages(void* memory, size_t size_bytes) : memory_(memory), size_bytes_(size_bytes) {}

  void* memory_ = nullptr;
  size_t size_bytes_ = 0;
};

struct SharedPages {
  Pages pages;  ///< writable, all allocated
  File file;    ///< for peers
};
/// The owner's side. `node`: see Pages::prefer_node. An error if the kernel has no such files, or
/// no memory.
Result<SharedPages> make_shared_pages(size_t size_bytes, bool may_peers_write, int node = -1);
/// A peer's side: maps the file that it received, if it is such a file of at least that size.
Result<Pages> map_shared_pages(const File& file, uint64_t size_bytes, bool is_writable);

}  // namespace braid::transfer
