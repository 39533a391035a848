// The memory calls that cuda::Driver does not have, and what pointers say of themselves.
#pragma once

#include "fixture.h"

namespace braid::emulator_test {

inline CUmemLocation on_gpu(int gpu) {
  CUmemLocation location{};
  location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  location.id = gpu;
  return location;
}

inline CUmemAccessDesc access_by(int gpu,
                                 CUmemAccess_flags flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE) {
  CUmemAccessDesc wanted{};
  wanted.location = on_gpu(gpu);
  wanted.flags = flags;
  return wanted;
}

/// Virtual memory management.
struct MemoryCalls {
  explicit MemoryCalls(Emulated& from) : server(from) {}

  /// Physical memory on a GPU.
  CUmemGenericAllocationHandle memory_on(
      int gpu, size_t size, CUmemAllocationHandleType type = CU_MEM_HANDLE_TYPE_NONE) const {
    CUmemAllocationProp wanted{};
    wanted.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    wanted.location = on_gpu(gpu);
    wanted.requestedHandleTypes = type;
    CUmemGenericAllocationHandle handle = 0;
    EXPECT_EQ(create(&handle, size, &wanted, 0), CUDA_SUCCESS);
    return handle;
  }

#define BRAID_MEMORY_CALL(member, name) \
  decltype(&::name) member = server.symbol<decltype(&::name)>(#name)

  Emulated& server;
  BRAID_MEMORY_CALL(reserve, cuMemAddressReserve);
  BRAID_MEMORY_CALL(address_free, cuMemAddressFree);
  BRAID_MEMORY_CALL(create, cuMemCreate);
  BRAID_MEMORY_CALL(release, cuMemRelease);
  BRAID_MEMORY_CALL(map, cuMemMap);
  BRAID_MEMORY_CALL(unmap, cuMemUnmap);
  BRAID_MEMORY_CALL(set_access, cuMemSetAccess);
  BRAID_MEMORY_CALL(get_access, cuMemGetAccess);
  BRAID_MEMORY_CALL(granularity, cuMemGetAllocationGranularity);
  BRAID_MEMORY_CALL(get_properties, cuMemGetAllocationPropertiesFromHandle);
  BRAID_MEMORY_CALL(retain, cuMemRetainAllocationHandle);
  BRAID_MEMORY_CALL(export_handle, cuMemExportToShareableHandle);
  BRAID_MEMORY_CALL(import_handle, cuMemImportFromShareableHandle);
};

/// Stream-ordered pools.
struct PoolCalls {
  explicit PoolCalls(Emulated& from) : server(from) {}

  CUdeviceptr allocated(size_t size, CUstream stream) const {
    CUdeviceptr address = 0;
    EXPECT_EQ(allocate(&address, size, stream), CUDA_SUCCESS);
    return address;
  }
  uint64_t attribute(CUmemoryPool pool, CUmemPool_attribute which) const {
    cuuint64_t value = 0;
    EXPECT_EQ(get_attribute(pool, which, &value), CUDA_SUCCESS) << which;
    return value;
  }
  CUmemoryPool default_pool(int gpu) const {
    CUmemoryPool pool = nullptr;
    EXPECT_EQ(get_default(&pool, gpu), CUDA_SUCCESS);
    return pool;
  }

  Emulated& server;
  BRAID_MEMORY_CALL(allocate, cuMemAllocAsync);
  BRAID_MEMORY_CALL(allocate_from, cuMemAllocFromPoolAsync);
  BRAID_MEMORY_CALL(free_async, cuMemFreeAsync);
  BRAID_MEMORY_CALL(create, cuMemPoolCreate);
  BRAID_MEMORY_CALL(destroy, cuMemPoolDestroy);
  BRAID_MEMORY_CALL(get_default, cuDeviceGetDefaultMemPool);
  BRAID_MEMORY_CALL(get_current, cuDeviceGetMemPool);
  BRAID_MEMORY_CALL(set_current, cuDeviceSetMemPool);
  BRAID_MEMORY_CALL(set_access, cuMemPoolSetAccess);
  BRAID_MEMORY_CALL(get_access, cuMemPoolGetAccess);
  BRAID_MEMORY_CALL(set_attribute, cuMemPoolSetAttribute);
  BRAID_MEMORY_CALL(get_attribute, cuMemPoolGetAttribute);
  BRAID_MEMORY_CALL(trim, cuMemPoolTrimTo);
};

struct PointerFacts {
  CUcontext context = nullptr;
  CUmemoryPool pool = nullptr;
  unsigned memory_type = 0;
  unsigned access = 0;
  int device = 0;
  int ipc_capable = 0;
  int managed = 0;
  int mapped = 0;
  CUdeviceptr range_start = 0;
  size_t range_bytes = 0;
  CUdeviceptr mapping_start = 0;
  size_t mapping_bytes = 0;
  uint64_t handle_types = 0;
  void* host = nullptr;
};

inline PointerFacts facts_of(Emulated& server, CUdeviceptr address) {
  PointerFacts facts;
  std::pair<CUpointer_attribute, void*> wanted[] = {
      {CU_POINTER_ATTRIBUTE_CONTEXT, &facts.context},
      {CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, &facts.pool},
      {CU_POINTER_ATTRIBUTE_MEMORY_TYPE, &facts.memory_type},
      {CU_POINTER_ATTRIBUTE_ACCESS_FLAGS, &facts.access},
      {CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, &facts.device},
      {CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, &facts.ipc_capable},
      {CU_POINTER_ATTRIBUTE_IS_MANAGED, &facts.managed},
      {CU_POINTER_ATTRIBUTE_MAPPED, &facts.mapped},
      {CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, &facts.range_start},
      {CU_POINTER_ATTRIBUTE_RANGE_SIZE, &facts.range_bytes},
      {CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR, &facts.mapping_start},
      {CU_POINTER_ATTRIBUTE_MAPPING_SIZE, &facts.mapping_bytes},
      {CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES, &facts.handle_types},
      {CU_POINTER_ATTRIBUTE_HOST_POINTER, &facts.host},
  };
  std::vector<CUpointer_attribute> attributes;
  std::vector<void*> data;
  for (const auto& [attribute, value] : wanted) {
    attributes.push_back(attribute);
    data.push_back(value);
  }
  EXPECT_EQ(server.cu.cuPointerGetAttributes(static_cast<unsigned>(data.size()), attributes.data(),
                                             data.data(), address),
            CUDA_SUCCESS);
  return facts;
}

}  // namespace braid::emulator_test
