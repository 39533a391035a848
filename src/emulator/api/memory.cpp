// Device memory: allocation and what is left of it.
#include <limits>

#include "emulator/api/context.h"
#include "emulator/constants.h"

namespace braid::emulator {
namespace {

CUresult allocate(Call& call, CUdeviceptr* out, size_t size_bytes) {
  if (out == nullptr || size_bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  BRAID_LET(context, current_context(call));
  const Allocation* allocation =
      call.world.memory.add_device(context->gpu, size_bytes, Allocation::made_in(*context));
  if (allocation == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  *out = allocation->address;
  return CUDA_SUCCESS;
}

// Rows start at multiples of what coalesced access wants.
CUresult allocate_pitched(Call& call, CUdeviceptr* out, size_t* pitch, size_t width_bytes,
                          size_t height, unsigned element_bytes) {
  constexpr size_t kPitch = 512;
  if (pitch == nullptr || width_bytes == 0 || height == 0) return CUDA_ERROR_INVALID_VALUE;
  if (element_bytes != 4 && element_bytes != 8 && element_bytes != 16)
    return CUDA_ERROR_INVALID_VALUE;
  if (width_bytes > std::numeric_limits<size_t>::max() - kPitch) return CUDA_ERROR_OUT_OF_MEMORY;
  const size_t row = (width_bytes + kPitch - 1) / kPitch * kPitch;
  if (height > std::numeric_limits<size_t>::max() / row) return CUDA_ERROR_OUT_OF_MEMORY;
  BRAID_TRY(allocate(call, out, row * height));
  *pitch = row;
  return CUDA_SUCCESS;
}

// What cuMemFree takes: all that has an address of its own on a GPU, and managed memory.
bool can_be_freed(const Allocation& allocation, CUdeviceptr address) {
  switch (allocation.kind) {
    case Allocation::Kind::kDevice:
    case Allocation::Kind::kManaged:
    case Allocation::Kind::kPooled: return allocation.address == address && !allocation.freeing;
    default: return false;
  }
}

// Work of the memory's own context ends first (seen on 2xH200). Memory from a pool has no owner to
// wait for: there the driver takes all accesses to be complete (CUDA programming guide,
// "Stream-ordered memory allocator"). Managed memory may be used by all; that it waits for all of
// them is assumed.
CUresult release(Call& call, CUdeviceptr address) {
  BRAID_LET(current, current_context(call));
  if (address == 0) return CUDA_SUCCESS;
  Memory& memory = call.world.memory;
  Allocation* allocation = memory.find(address);
  if (allocation == nullptr || !can_be_freed(*allocation, address)) return CUDA_ERROR_INVALID_VALUE;
  const uint64_t buffer_id = allocation->buffer_id;
  const bool managed = allocation->kind == Allocation::Kind::kManaged;
  if (const ContextPtr owner = owner_of(call, *allocation)) wait_for_context(call, owner);
  if (managed) wait_for_everybody(call);
  allocation = memory.find(address);
  if (allocation == nullptr || allocation->buffer_id != buffer_id) return CUDA_ERROR_INVALID_VALUE;
  memory.remove(allocation);
  return current->error;
}

CUresult get_info(Call& call, size_t* free_bytes, size_t* total_bytes) {
  if (free_bytes == nullptr && total_bytes == nullptr) return CUDA_ERROR_INVALID_VALUE;
  BRAID_LET(context, current_context(call));
  const Arena& arena = call.world.memory.arena(context->gpu);
  if (free_bytes != nullptr) *free_bytes = arena.free_bytes();
  if (total_bytes != nullptr) *total_bytes = arena.capacity_bytes();
  return CUDA_SUCCESS;
}

CUresult get_address_range(Call& call, CUdeviceptr* base, size_t* size_bytes, CUdeviceptr address) {
  BRAID_TRY(current_context(call).status());
  const Allocation* allocation = call.world.memory.find(address);
  if (allocation == nullptr) return CUDA_ERROR_NOT_FOUND;
  if (base != nullptr) *base = allocation->address;
  if (size_bytes != nullptr) *size_bytes = allocation->size_bytes;
  return CUDA_SUCCESS;
}

}  // namespace

BRAID_ENTRY(cuMemAlloc_v2, 2, allocate)
BRAID_ENTRY(cuMemAllocPitch_v2, 5, allocate_pitched)
BRAID_QUERY(cuMemFree_v2, 1, release)
BRAID_ENTRY(cuMemGetInfo_v2, 2, get_info)
BRAID_ENTRY(cuMemGetAddressRange_v2, 3, get_address_range)

}  // namespace braid::emulator
