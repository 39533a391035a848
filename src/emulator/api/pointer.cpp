// What the driver knows of a pointer.
#include <cstring>

#include "emulator/api/entry.h"
#include "emulator/model/access.h"

namespace braid::emulator {
namespace {

constexpr int kNoDevice = -2;  // cudaInvalidDeviceId

template <typename Value>
CUresult put(void* data, Value value) {
  std::memcpy(data, &value, sizeof(value));
  return CUDA_SUCCESS;
}

// Mappings and pools belong to devices, not to contexts.
CUcontext context_of(const Call& call, const Allocation& allocation) {
  if (allocation.context == 0) return nullptr;
  for (const auto& [handle, context] : call.world.contexts.all())
    if (context->id == allocation.context) return context->handle;
  return nullptr;
}

// Of the range that holds the address: an allocation's own, but for mappings all that was reserved.
Reservations::Range range_of(const Call& call, const Allocation& allocation) {
  const bool mapped = allocation.kind == Allocation::Kind::kMapped;
  if (mapped) return *call.world.memory.reservations().find(allocation.address);
  return {allocation.address, allocation.size_bytes, allocation.bytes};
}

uint64_t handle_types_of(const Allocation& allocation) {
  if (allocation.physical == nullptr) return 0;
  return static_cast<uint64_t>(allocation.physical->properties().requestedHandleTypes);
}

// What the current context's GPU may do. Without a current context: what the memory's own may.
CUmemAccess_flags access_of(Call& call, const Allocation& allocation) {
  auto context = current_context(call);
  if (!context.ok() || kernel_may(*context.value(), allocation, Access::kWrite))
    return CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  return kernel_may(*context.value(), allocation, Access::kRead) ? CU_MEM_ACCESS_FLAGS_PROT_READ
                                                                 : CU_MEM_ACCESS_FLAGS_PROT_NONE;
}

CUresult read(Call& call, const Allocation& allocation, CUdeviceptr address,
              CUpointer_attribute attribute, void* data) {
  const bool managed = allocation.kind == Allocation::Kind::kManaged;
  switch (static_cast<int>(attribute)) {
    case CU_POINTER_ATTRIBUTE_CONTEXT: return put(data, context_of(call, allocation));
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
      return put(data,
                 static_cast<unsigned>(allocation.is_host() && !managed ? CU_MEMORYTYPE_HOST
                                                                        : CU_MEMORYTYPE_DEVICE));
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER: return put(data, address);
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
      return cpu_may(allocation) ? put(data, address) : CUDA_ERROR_INVALID_VALUE;
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS: return put(data, allocation.sync_memops ? 1 : 0);
    case CU_POINTER_ATTRIBUTE_BUFFER_ID: return put(data, uint64_t{allocation.buffer_id});
    case CU_POINTER_ATTRIBUTE_IS_MANAGED: return put(data, managed ? 1 : 0);
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL: return put(data, allocation.device);
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
      return put(data, allocation.kind == Allocation::Kind::kDevice ? 1 : 0);  // as on H200
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
      return put(data, CUdeviceptr{range_of(call, allocation).address});
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
      return put(data, size_t{range_of(call, allocation).size_bytes});
    case CU_POINTER_ATTRIBUTE_MAPPED: return put(data, 1);
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES: return put(data, handle_types_of(allocation));
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE: return put(data, 0);
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
      return put(data, static_cast<unsigned>(access_of(call, allocation)));
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
      return put(data, allocation.pool != nullptr ? allocation.pool->handle : nullptr);
    case CU_POINTER_ATTRIBUTE_MAPPING_SIZE: return put(data, size_t{allocation.size_bytes});
    case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR: return put(data, CUdeviceptr{allocation.address});
    default: return CUDA_ERROR_NOT_SUPPORTED;
  }
}

// Addresses that are reserved and have nothing mapped are known by their range alone.
CUresult read_reserved(const Call& call, CUdeviceptr address, CUpointer_attribute attribute,
                       void* data) {
  const Reservations::Range* range = call.world.memory.reservations().find(address);
  if (range == nullptr) return CUDA_ERROR_INVALID_VALUE;
  switch (static_cast<int>(attribute)) {
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR: return put(data, CUdeviceptr{range->address});
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE: return put(data, size_t{range->size_bytes});
    case CU_POINTER_ATTRIBUTE_MAPPED: return put(data, 0);
    default: return CUDA_ERROR_INVALID_VALUE;
  }
}

CUresult read_any(Call& call, CUdeviceptr address, CUpointer_attribute attribute, void* data) {
  const Allocation* allocation = call.world.memory.find(address);
  return allocation != nullptr ? read(call, *allocation, address, attribute, data)
                               : read_reserved(call, address, attribute, data);
}

// What cuPointerGetAttributes gives for memory that CUDA does not know, and for attributes that the
// memory does not have.
CUresult read_nothing(CUpointer_attribute attribute, void* data) {
  switch (static_cast<int>(attribute)) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
    case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
    case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR: return put(data, uint64_t{0});
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL: return put(data, kNoDevice);
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
    case CU_POINTER_ATTRIBUTE_MAPPED:
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS: return put(data, 0);
    default: return CUDA_ERROR_NOT_SUPPORTED;
  }
}

CUresult get_one(Call& call, void* data, CUpointer_attribute attribute, CUdeviceptr address) {
  if (data == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return read_any(call, address, attribute, data);
}

CUresult get_several(Call& call, unsigned count, CUpointer_attribute* attributes, void** data,
                     CUdeviceptr address) {
  if (count == 0 || attributes == nullptr || data == nullptr) return CUDA_ERROR_INVALID_VALUE;
  for (unsigned i = 0; i < count; ++i) {
    if (data[i] == nullptr) return CUDA_ERROR_INVALID_VALUE;
    const CUresult result = read_any(call, address, attributes[i], data[i]);
    if (result != CUDA_SUCCESS && result != CUDA_ERROR_INVALID_VALUE) return result;
    if (result != CUDA_SUCCESS) BRAID_TRY(read_nothing(attributes[i], data[i]));
  }
  return CUDA_SUCCESS;
}

CUresult set_one(Call& call, const void* value, CUpointer_attribute attribute,
                 CUdeviceptr address) {
  if (value == nullptr || attribute != CU_POINTER_ATTRIBUTE_SYNC_MEMOPS)
    return CUDA_ERROR_INVALID_VALUE;
  Allocation* allocation = call.world.memory.find(address);
  if (allocation == nullptr) return CUDA_ERROR_INVALID_VALUE;
  int flag = 0;
  std::memcpy(&flag, value, sizeof(flag));
  allocation->sync_memops = flag != 0;
  return CUDA_SUCCESS;
}

}  // namespace

BRAID_ENTRY(cuPointerGetAttribute, 3, get_one)
BRAID_ENTRY(cuPointerGetAttributes, 4, get_several)
BRAID_ENTRY(cuPointerSetAttribute, 3, set_one)

}  // namespace braid::emulator
