#include "library/memory_map.h"

#include <algorithm>
#include <iterator>

namespace braid::library {

Memory MemoryMap::find(const cuda::Driver& driver, uint64_t address) {
  for (const Memory& memory : recent_)
    if (memory.holds(address)) return memory;
  const auto after =
      std::upper_bound(known_.begin(), known_.end(), address,
                       [](uint64_t wanted, const Memory& memory) { return wanted < memory.end; });
  if (after != known_.end() && after->holds(address)) return remember(*after);

  unsigned type = 0;
  unsigned is_managed = 0;
  CUcontext context = nullptr;
  int gpu = -1;
  CUdeviceptr begin = 0;
  size_t size_bytes = 0;
  CUpointer_attribute attributes[] = {
      CU_POINTER_ATTRIBUTE_MEMORY_TYPE,      CU_POINTER_ATTRIBUTE_IS_MANAGED,
      CU_POINTER_ATTRIBUTE_CONTEXT,          CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
      CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, CU_POINTER_ATTRIBUTE_RANGE_SIZE};
  void* values[] = {&type, &is_managed, &context, &gpu, &begin, &size_bytes};
  const auto count = static_cast<unsigned>(std::size(attributes));
  if (driver.cuPointerGetAttributes(count, attributes, values, address) != CUDA_SUCCESS ||
      type == 0)
    return {};
  Memory memory{begin, begin + size_bytes, type == CU_MEMORYTYPE_DEVICE, true, is_managed != 0};
  if (memory.is_device) {
    memory.context = context;
    memory.gpu = gpu;
  }
  if (size_bytes > 0) remember(*known_.insert(after, memory));
  return memory;
}

const Memory& MemoryMap::remember(const Memory& memory) {
  Memory& place = recent_[oldest_];
  oldest_ = (oldest_ + 1) % recent_.size();
  return place = memory;
}

}  // namespace braid::library
