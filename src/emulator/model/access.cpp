#include "emulator/model/access.h"

namespace braid::emulator {

bool engine_may(int device, const Allocation& allocation, Access access) {
  const bool writes = access == Access::kWrite;
  if (writes && allocation.is_read_only()) return false;
  if (allocation.grants == nullptr) return true;
  const CUmemAccess_flags granted = granted_to(*allocation.grants, device);
  return granted == CU_MEM_ACCESS_FLAGS_PROT_READWRITE ||
         (granted == CU_MEM_ACCESS_FLAGS_PROT_READ && !writes);
}

bool kernel_may(const Context& context, const Allocation& allocation, Access access) {
  if (!engine_may(context.device, allocation, access)) return false;
  return allocation.grants != nullptr || allocation.is_host() || allocation.context == context.id ||
         context.peers.count(allocation.context) > 0;
}

bool cpu_may(const Allocation& allocation) {
  if (allocation.grants == nullptr) return allocation.is_host();
  return granted_to(*allocation.grants, CU_DEVICE_CPU) == CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
}

Allocation* find_for_engine(Memory& memory, int device, uint64_t address, uint64_t size_bytes,
                            Access access) {
  return memory.find(address, size_bytes, [&](const Allocation& allocation) {
    return allocation.live && engine_may(device, allocation, access);
  });
}

Allocation* find_for_kernel(Memory& memory, const Context& context, uint64_t address,
                            uint64_t size_bytes, Access access) {
  return memory.find(address, size_bytes, [&](const Allocation& allocation) {
    return allocation.live && kernel_may(context, allocation, access);
  });
}

}  // namespace braid::emulator
