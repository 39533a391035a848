// Memory that the library allocates for its callers: pages of zeros, large ones where the kernel
// has them. Touched in the allocating thread, so that it lies on that thread's NUMA node.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <utility>

#include "base/status.h"

namespace braid::transfer {

class Allocation {
 public:
  static Result<Allocation> make(size_t size_bytes) {
    void* memory = size_bytes == 0 ? MAP_FAILED
                                   : mmap(nullptr, size_bytes, PROT_READ | PROT_WRITE,
                                          MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
      return Status::error("there is no memory of " + std::to_string(size_bytes) + " bytes");
    (void)madvise(memory, size_bytes, MADV_HUGEPAGE);
    constexpr size_t kPageBytes = 4096;
    for (size_t i = 0; i < size_bytes; i += kPageBytes) static_cast<volatile char*>(memory)[i] = 0;
    return Allocation(memory, size_bytes);
  }
  ~Allocation() {
    if (memory_ != nullptr) munmap(memory_, size_bytes_);
  }
  Allocation(Allocation&& other) noexcept
      : memory_(std::exchange(other.memory_, nullptr)), size_bytes_(other.size_bytes_) {}
  Allocation& operator=(Allocation&& other) noexcept {
    std::swap(memory_, other.memory_);
    std::swap(size_bytes_, other.size_bytes_);
    return *this;
  }
  void* memory() const { return memory_; }

 private:
  Allocation(void* memory, size_t size_bytes) : memory_(memory), size_bytes_(size_bytes) {}

  void* memory_ = nullptr;
  size_t size_bytes_ = 0;
};

}  // namespace braid::transfer
