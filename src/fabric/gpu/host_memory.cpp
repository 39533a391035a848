#include "fabric/gpu/host_memory.h"

#include <cstring>
#include <utility>

namespace braid::fabric::gpu {

std::shared_ptr<HostMemory> HostMemory::open(size_t size_bytes) {
  auto pages = HugePages::map(size_bytes);
  if (!pages.ok()) return nullptr;
  const MutableBytes bytes = pages.value().bytes();
  std::memset(bytes.data(), 0, bytes.size());
  return std::shared_ptr<HostMemory>(
      new HostMemory(std::move(pages).value()));  // owner: the pointer around it
}

}  // namespace braid::fabric::gpu
