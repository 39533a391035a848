#include "fabric/gpu/host_memory.h"

#include <sys/mman.h>

#include <cstring>

namespace braid::fabric::gpu {
namespace {

constexpr size_t kHugePageBytes = 2 << 20;

}  // namespace

std::shared_ptr<HostMemory> HostMemory::open(size_t size_bytes) {
  const size_t mapping_bytes = size_bytes + kHugePageBytes;
  void* mapping =
      mmap(nullptr, mapping_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapping == MAP_FAILED) return nullptr;
  return std::shared_ptr<HostMemory>(
      new HostMemory(mapping, mapping_bytes, size_bytes));  // owner: the pointer around it
}

HostMemory::HostMemory(void* mapping, size_t mapping_bytes, size_t size_bytes)
    : mapping_(mapping), mapping_bytes_(mapping_bytes) {
  const auto address = reinterpret_cast<uintptr_t>(mapping);
  const uintptr_t first = (address + kHugePageBytes - 1) / kHugePageBytes * kHugePageBytes;
  bytes_ = {reinterpret_cast<std::byte*>(first), size_bytes};
  madvise(bytes_.data(), size_bytes, MADV_HUGEPAGE);
  // Pinned pages must stay the parent's after a fork: the driver and the network know them.
  madvise(mapping, mapping_bytes, MADV_DONTFORK);
  std::memset(bytes_.data(), 0, size_bytes);
}

HostMemory::~HostMemory() { munmap(mapping_, mapping_bytes_); }

}  // namespace braid::fabric::gpu
