// Stream-ordered allocation, and the pools it comes from.
#include <memory>

#include "emulator/api/device.h"
#include "emulator/api/location.h"
#include "emulator/ops/ops.h"

namespace braid::emulator {
namespace {

// When the GPU is full but streams are about to free memory, the program waits for that. (A driver
// makes the stream wait instead.)
Allocation* take_from(Call& call, const PoolPtr& pool, size_t size_bytes) {
  World& world = call.world;
  Allocation* made = world.memory.add_pooled(pool, size_bytes);
  if (made != nullptr || !world.memory.frees_pending(pool->gpu)) return made;
  world.run_out(call.lock, [&] {
    made = world.memory.add_pooled(pool, size_bytes);
    return made != nullptr || !world.memory.frees_pending(pool->gpu);
  });
  world.clock.wait_until(world.simulation.now());
  return made;
}

CUresult allocate(Call& call, CUdeviceptr* out, size_t size_bytes, const PoolPtr& pool,
                  const StreamPtr& stream) {
  BRAID_TRY(check_capture(stream));
  if (stream->capture != nullptr) return CUDA_ERROR_NOT_SUPPORTED;  // graphs own no memory here
  BRAID_TRY(refuse_during_capture(call));
  Allocation* made = take_from(call, pool, size_bytes);
  if (made == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  *out = made->address;
  enqueue_allocation(call.world, stream, *made);
  return CUDA_SUCCESS;
}

CUresult allocate_async(Call& call, CUdeviceptr* out, size_t size_bytes, CUstream handle) {
  if (out == nullptr || size_bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  BRAID_LET(stream, find_stream(call, handle));
  const int device = stream->context.lock()->device;
  return allocate(call, out, size_bytes, call.world.pools.current_of(device), stream);
}

CUresult allocate_from(Call& call, CUdeviceptr* out, size_t size_bytes, CUmemoryPool pool_handle,
                       CUstream handle) {
  const PoolPtr pool = call.world.pools.find(pool_handle);
  if (out == nullptr || size_bytes == 0 || pool == nullptr) return CUDA_ERROR_INVALID_VALUE;
  BRAID_LET(stream, find_stream(call, handle));
  return allocate(call, out, size_bytes, pool, stream);
}

CUresult free_async(Call& call, CUdeviceptr address, CUstream handle) {
  BRAID_LET(stream, find_stream(call, handle));
  if (address == 0) return CUDA_SUCCESS;
  Allocation* allocation = call.world.memory.find(address);
  if (allocation == nullptr || allocation->address != address || allocation->freeing)
    return CUDA_ERROR_INVALID_VALUE;
  if (allocation->kind != Allocation::Kind::kPooled &&
      allocation->kind != Allocation::Kind::kDevice)
    return CUDA_ERROR_INVALID_VALUE;
  BRAID_TRY(check_capture(stream));
  if (stream->capture != nullptr) return CUDA_ERROR_INVALID_VALUE;  // not memory of a graph
  BRAID_TRY(refuse_during_capture(call));
  allocation->freeing = true;
  enqueue_free(call.world, stream, *allocation);
  return CUDA_SUCCESS;
}

CUresult create(Call& call, CUmemoryPool* out, const CUmemPoolProps* properties) {
  if (out == nullptr || properties == nullptr || properties->win32SecurityAttributes != nullptr ||
      properties->allocType != CU_MEM_ALLOCATION_TYPE_PINNED)
    return CUDA_ERROR_INVALID_VALUE;
  BRAID_LET(place, find_place(call, properties->location));
  // CU_DEVICE_ATTRIBUTE_MEMPOOL_SUPPORTED_HANDLE_TYPES and .._HOST_MEMORY_POOLS_SUPPORTED are 0.
  if (!place.is_gpu() || properties->handleTypes != CU_MEM_HANDLE_TYPE_NONE)
    return CUDA_ERROR_NOT_SUPPORTED;
  *out =
      call.world.pools.create(properties->location.id, place.number(), properties->maxSize)->handle;
  return CUDA_SUCCESS;
}

CUresult destroy(Call& call, CUmemoryPool handle) {
  const PoolPtr pool = call.world.pools.find(handle);
  if (pool == nullptr || call.world.pools.is_default(pool)) return CUDA_ERROR_INVALID_VALUE;
  pool->release_threshold_bytes = 0;
  pool->trim(call.world.memory.arena(pool->gpu), 0);
  call.world.pools.destroy(pool);
  return CUDA_SUCCESS;
}

template <PoolPtr (Pools::*pool_of)(int device) const>
CUresult get(Call& call, CUmemoryPool* out, CUdevice device) {
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  BRAID_TRY(check_device(call, device));
  *out = (call.world.pools.*pool_of)(device)->handle;
  return CUDA_SUCCESS;
}

CUresult set_current(Call& call, CUdevice device, CUmemoryPool handle) {
  BRAID_TRY(check_device(call, device));
  const PoolPtr pool = call.world.pools.find(handle);
  if (pool == nullptr || pool->device != device) return CUDA_ERROR_INVALID_VALUE;
  call.world.pools.set_current(device, pool);
  return CUDA_SUCCESS;
}

// The GPU that the memory lies on keeps its access.
CUresult set_access(Call& call, CUmemoryPool handle, const CUmemAccessDesc* wanted, size_t count) {
  wait_to_set_access(call);
  const PoolPtr pool = call.world.pools.find(handle);
  if (pool == nullptr || wanted == nullptr || count == 0) return CUDA_ERROR_INVALID_VALUE;
  Grants grants = *pool->grants;
  BRAID_TRY(grant(call, Place::gpu(pool->gpu), wanted, count, grants));
  if (granted_to(grants, pool->device) != CU_MEM_ACCESS_FLAGS_PROT_READWRITE)
    return CUDA_ERROR_INVALID_VALUE;
  *pool->grants = grants;
  return CUDA_SUCCESS;
}

CUresult get_access(Call& call, CUmemAccess_flags* flags, CUmemoryPool handle,
                    CUmemLocation* location) {
  const PoolPtr pool = call.world.pools.find(handle);
  if (pool == nullptr || flags == nullptr || location == nullptr) return CUDA_ERROR_INVALID_VALUE;
  BRAID_LET(accessor, find_accessor(call, *location));
  *flags = granted_to(*pool->grants, accessor);
  return CUDA_SUCCESS;
}

bool is_reuse(CUmemPool_attribute attribute) {
  return attribute == CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES ||
         attribute == CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC ||
         attribute == CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES;
}

// Reuse is an int, all else a cuuint64_t. High watermarks can only be set to 0.
CUresult set_attribute(Call& call, CUmemoryPool handle, CUmemPool_attribute attribute,
                       void* value) {
  const PoolPtr pool = call.world.pools.find(handle);
  if (pool == nullptr || value == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (is_reuse(attribute)) {
    pool->reuse[attribute] = *static_cast<const int*>(value) != 0 ? 1 : 0;
    return CUDA_SUCCESS;
  }
  const uint64_t number = *static_cast<const cuuint64_t*>(value);
  switch (attribute) {
    case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
      pool->release_threshold_bytes = number;
      return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
      if (number != 0) return CUDA_ERROR_INVALID_VALUE;
      pool->reserved_high_bytes = pool->reserved_bytes();
      return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
      if (number != 0) return CUDA_ERROR_INVALID_VALUE;
      pool->used_high_bytes = pool->used_bytes;
      return CUDA_SUCCESS;
    default: return CUDA_ERROR_INVALID_VALUE;
  }
}

CUresult get_attribute(Call& call, CUmemoryPool handle, CUmemPool_attribute attribute,
                       void* value) {
  const PoolPtr pool = call.world.pools.find(handle);
  if (pool == nullptr || value == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (is_reuse(attribute)) {
    const auto set = pool->reuse.find(attribute);
    *static_cast<int*>(value) = set == pool->reuse.end() ? 1 : set->second;
    return CUDA_SUCCESS;
  }
  cuuint64_t& number = *static_cast<cuuint64_t*>(value);
  switch (attribute) {
    case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
      number = pool->release_threshold_bytes;
      return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT: number = pool->reserved_bytes(); return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH: number = pool->reserved_high_bytes; return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_USED_MEM_CURRENT: number = pool->used_bytes; return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_USED_MEM_HIGH: number = pool->used_high_bytes; return CUDA_SUCCESS;
    default: return CUDA_ERROR_INVALID_VALUE;
  }
}

CUresult trim(Call& call, CUmemoryPool handle, size_t keep_bytes) {
  const PoolPtr pool = call.world.pools.find(handle);
  if (pool == nullptr) return CUDA_ERROR_INVALID_VALUE;
  pool->trim(call.world.memory.arena(pool->gpu), keep_bytes);
  return CUDA_SUCCESS;
}

}  // namespace

BRAID_ENTRY_STREAM(cuMemAllocAsync, _ptsz, Cost::kEnqueue, 3, allocate_async)
BRAID_ENTRY_STREAM(cuMemAllocFromPoolAsync, _ptsz, Cost::kEnqueue, 4, allocate_from)
BRAID_ENTRY_STREAM(cuMemFreeAsync, _ptsz, Cost::kEnqueue, 2, free_async)
BRAID_ENTRY(cuMemPoolCreate, 2, create)
BRAID_ENTRY(cuMemPoolDestroy, 1, destroy)
BRAID_ENTRY(cuDeviceGetDefaultMemPool, 2, get<&Pools::default_of>)
BRAID_ENTRY(cuDeviceGetMemPool, 2, get<&Pools::current_of>)
BRAID_ENTRY(cuDeviceSetMemPool, 2, set_current)
BRAID_ENTRY(cuMemPoolSetAccess, 3, set_access)
BRAID_ENTRY(cuMemPoolGetAccess, 3, get_access)
BRAID_ENTRY(cuMemPoolSetAttribute, 3, set_attribute)
BRAID_ENTRY(cuMemPoolGetAttribute, 3, get_attribute)
BRAID_ENTRY(cuMemPoolTrimTo, 2, trim)

}  // namespace braid::emulator
