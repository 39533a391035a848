// Managed memory. It lies in host memory, where every GPU and the CPU may use it at any time; it
// does not migrate, so that prefetching and advice are checked and change nothing.
#include "emulator/api/context.h"
#include "emulator/api/location.h"
#include "emulator/ops/ops.h"

namespace braid::emulator {
namespace {

CUresult allocate(Call& call, CUdeviceptr* out, size_t size_bytes, unsigned flags) {
  if (out == nullptr || size_bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  if (flags != CU_MEM_ATTACH_GLOBAL && flags != CU_MEM_ATTACH_HOST) return CUDA_ERROR_INVALID_VALUE;
  BRAID_LET(context, current_context(call));
  Allocation made = Allocation::made_in(*context);
  made.kind = Allocation::Kind::kManaged;
  const int node = call.world.server.gpus[context->gpu].numa_node;
  const Allocation* allocation = call.world.memory.add_host(node, size_bytes, made);
  if (allocation == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  *out = allocation->address;
  return CUDA_SUCCESS;
}

CUresult check_range(Call& call, CUdeviceptr address, size_t size_bytes) {
  if (size_bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  const Allocation* found = call.world.memory.find(address, size_bytes);
  const bool managed = found != nullptr && found->kind == Allocation::Kind::kManaged;
  return managed ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUmemLocation location_of(CUdevice device) {
  CUmemLocation location{};
  location.type = device == CU_DEVICE_CPU ? CU_MEM_LOCATION_TYPE_HOST : CU_MEM_LOCATION_TYPE_DEVICE;
  location.id = device;
  return location;
}

CUresult prefetch_to(Call& call, CUdeviceptr address, size_t size_bytes, CUmemLocation location,
                     unsigned flags, CUstream handle) {
  BRAID_LET(stream, find_stream(call, handle));
  if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
  if (location.type != CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT)
    BRAID_TRY(find_place(call, location).status());
  BRAID_TRY(check_range(call, address, size_bytes));
  BRAID_TRY(check_capture(stream));
  if (stream->capture != nullptr) return CUDA_ERROR_NOT_SUPPORTED;  // CUDA has no node for it
  enqueue_marker(call.world, stream);
  return CUDA_SUCCESS;
}

CUresult prefetch(Call& call, CUdeviceptr address, size_t size_bytes, CUdevice device,
                  CUstream stream) {
  return prefetch_to(call, address, size_bytes, location_of(device), 0, stream);
}

// Advice that undoes, and advice on reading, is not about a location.
bool needs_location(CUmem_advise advice) {
  return advice == CU_MEM_ADVISE_SET_PREFERRED_LOCATION ||
         advice == CU_MEM_ADVISE_SET_ACCESSED_BY || advice == CU_MEM_ADVISE_UNSET_ACCESSED_BY;
}

CUresult advise_of(Call& call, CUdeviceptr address, size_t size_bytes, CUmem_advise advice,
                   CUmemLocation location) {
  if (advice < CU_MEM_ADVISE_SET_READ_MOSTLY || advice > CU_MEM_ADVISE_UNSET_ACCESSED_BY)
    return CUDA_ERROR_INVALID_VALUE;
  if (needs_location(advice) && location.type != CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT)
    BRAID_TRY(find_place(call, location).status());
  return check_range(call, address, size_bytes);
}

CUresult advise(Call& call, CUdeviceptr address, size_t size_bytes, CUmem_advise advice,
                CUdevice device) {
  return advise_of(call, address, size_bytes, advice, location_of(device));
}

}  // namespace

BRAID_ENTRY(cuMemAllocManaged, 3, allocate)
BRAID_ENTRY_STREAM(cuMemPrefetchAsync, _ptsz, Cost::kEnqueue, 4, prefetch)
BRAID_ENTRY_STREAM(cuMemPrefetchAsync_v2, _ptsz, Cost::kEnqueue, 5, prefetch_to)
BRAID_ENTRY(cuMemAdvise, 4, advise)
BRAID_ENTRY(cuMemAdvise_v2, 4, advise_of)

}  // namespace braid::emulator
