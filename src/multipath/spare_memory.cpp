#include "multipath/spare_memory.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace braid::multipath {

Result<SpareMemory::Memory> SpareMemory::take(uint64_t size_bytes, const std::string& what) {
  Memory found;
  {
    const std::lock_guard lock(mutex_);
    const auto at = std::find_if(memory_.begin(), memory_.end(), [&](const Memory& memory) {
      return memory->size_bytes() == size_bytes;
    });
    if (at != memory_.end()) {
      found = std::move(*at);
      memory_.erase(at);
    }
  }
  if (found == nullptr) return cuda::RegisteredMemory::open(driver_, size_bytes, what);
  std::memset(found->data(), 0, size_bytes);
  return found;
}

void SpareMemory::give_back(Memory memory) {
  const std::lock_guard lock(mutex_);
  memory_.push_back(std::move(memory));
}

void SpareMemory::clear() {
  std::vector<Memory> memory;
  {
    const std::lock_guard lock(mutex_);
    memory.swap(memory_);
  }
}

void SpareMemory::abandon() {
  const std::lock_guard lock(mutex_);
  for (const Memory& memory : memory_) memory->abandon();
}

}  // namespace braid::multipath
