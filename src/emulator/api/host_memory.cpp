// Pinned host memory: allocated by the driver, or registered by the program.
#include "emulator/api/context.h"
#include "emulator/model/host_pages.h"

namespace braid::emulator {
namespace {

constexpr unsigned kAllocFlags =
    CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP | CU_MEMHOSTALLOC_WRITECOMBINED;
constexpr unsigned kRegisterFlags = CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP |
                                    CU_MEMHOSTREGISTER_IOMEMORY | CU_MEMHOSTREGISTER_READ_ONLY;

// Pinned pages lie on, or are taken to lie on, the node nearest to the current context's GPU.
int nearest_node(const Call& call, const Context& context) {
  return call.world.server.gpus[context.gpu].numa_node;
}

CUresult allocate(Call& call, void** out, size_t size_bytes, unsigned flags) {
  if (out == nullptr || size_bytes == 0 || (flags & ~kAllocFlags) != 0)
    return CUDA_ERROR_INVALID_VALUE;
  BRAID_LET(context, current_context(call));
  const Allocation* allocation = call.world.memory.add_host(
      nearest_node(call, *context), size_bytes, Allocation::made_in(*context, flags));
  if (allocation == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  *out = allocation->bytes;
  return CUDA_SUCCESS;
}

CUresult allocate_plain(Call& call, void** out, size_t size_bytes) {
  return allocate(call, out, size_bytes, 0);
}

// Work of the context that the memory was pinned in ends first (seen on 2xH200).
CUresult remove(Call& call, void* address, Allocation::Kind kind, CUresult unknown) {
  if (address == nullptr) return CUDA_ERROR_INVALID_VALUE;
  BRAID_TRY(current_context(call).status());
  const auto find = [&] {
    Allocation* found = call.world.memory.find(reinterpret_cast<uint64_t>(address));
    return found != nullptr && found->kind == kind && found->bytes == address ? found : nullptr;
  };
  Allocation* allocation = find();
  if (allocation == nullptr) return unknown;
  if (const ContextPtr owner = owner_of(call, *allocation)) wait_for_context(call, owner);
  allocation = find();
  if (allocation == nullptr) return unknown;
  call.world.memory.remove(allocation);
  return CUDA_SUCCESS;
}

CUresult release(Call& call, void* address) {
  return remove(call, address, Allocation::Kind::kHostAllocated, CUDA_ERROR_INVALID_VALUE);
}

CUresult register_range(Call& call, void* address, size_t size_bytes, unsigned flags) {
  if (address == nullptr || size_bytes == 0 || (flags & ~kRegisterFlags) != 0)
    return CUDA_ERROR_INVALID_VALUE;
  if ((flags & CU_MEMHOSTREGISTER_IOMEMORY) != 0) return CUDA_ERROR_NOT_PERMITTED;
  BRAID_LET(context, current_context(call));
  const uint64_t start = reinterpret_cast<uint64_t>(address);
  if (call.world.memory.overlaps(start, size_bytes))
    return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
  // Without pageable memory access, pages that the CPU may not write need the flag. That they may
  // be written is asked first, since it costs nothing by the page.
  const bool read_only = (flags & CU_MEMHOSTREGISTER_READ_ONLY) != 0;
  if (!is_writable(address, size_bytes) && (!read_only || !is_readable(address, size_bytes)))
    return CUDA_ERROR_INVALID_VALUE;
  call.world.memory.add_registered(nearest_node(call, *context), address, size_bytes,
                                   Allocation::made_in(*context, flags));
  return CUDA_SUCCESS;
}

CUresult unregister(Call& call, void* address) {
  return remove(call, address, Allocation::Kind::kHostRegistered,
                CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
}

// Under UVA a pinned page has one address everywhere.
CUresult get_device_pointer(Call& call, CUdeviceptr* out, void* address, unsigned flags) {
  if (out == nullptr || address == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  BRAID_TRY(current_context(call).status());
  const Allocation* allocation = call.world.memory.find(reinterpret_cast<uint64_t>(address));
  if (allocation == nullptr || !allocation->is_pinned()) return CUDA_ERROR_INVALID_VALUE;
  *out = reinterpret_cast<CUdeviceptr>(address);
  return CUDA_SUCCESS;
}

CUresult get_flags(Call& call, unsigned* flags, void* address) {
  if (flags == nullptr || address == nullptr) return CUDA_ERROR_INVALID_VALUE;
  BRAID_TRY(current_context(call).status());
  const Allocation* allocation = call.world.memory.find(reinterpret_cast<uint64_t>(address));
  if (allocation == nullptr || !allocation->is_pinned()) return CUDA_ERROR_INVALID_VALUE;
  // Registered memory has them too, in the same bits, and read-only is none of them (H200, 580).
  const unsigned known = CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_WRITECOMBINED;
  *flags = (allocation->flags & known) | CU_MEMHOSTALLOC_DEVICEMAP;  // always so under UVA
  return CUDA_SUCCESS;
}

}  // namespace

BRAID_ENTRY(cuMemHostAlloc, 3, allocate)
BRAID_ENTRY(cuMemAllocHost_v2, 2, allocate_plain)
BRAID_QUERY(cuMemFreeHost, 1, release)
BRAID_ENTRY_V2(cuMemHostRegister, 3, register_range)
BRAID_QUERY(cuMemHostUnregister, 1, unregister)
BRAID_ENTRY(cuMemHostGetDevicePointer_v2, 3, get_device_pointer)
BRAID_ENTRY(cuMemHostGetFlags, 2, get_flags)

}  // namespace braid::emulator
