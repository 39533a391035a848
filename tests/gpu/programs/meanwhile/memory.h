// Allocating, freeing, pinning and mapping memory.
#pragma once

#include <sys/mman.h>

#include "scene.h"

namespace meanwhile {

inline void* map_pages() {
  void* pages =
      mmap(nullptr, kScratchBytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  require(pages != MAP_FAILED, "mmap");
  std::memset(pages, 1, kScratchBytes);
  return pages;
}

inline Action allocate_now(const Scene&) {
  auto memory = shared<void*>();
  return {[=] { MUST(cudaMalloc(memory.get(), kScratchBytes)); }, [=] { MUST(cudaFree(*memory)); }};
}

inline Action free_now(const Scene&) {
  void* memory = allocate(kScratchBytes);
  return {[=] { MUST(cudaFree(memory)); }};
}

inline Action pool_allocate(const Scene& scene) {
  auto memory = shared<void*>();
  const cudaStream_t own = scene.own;
  return {[=] {
            MUST(cudaMallocAsync(memory.get(), kScratchBytes, own));
            MUST(cudaStreamSynchronize(own));
          },
          [=] {
            MUST(cudaFreeAsync(*memory, own));
            MUST(cudaStreamSynchronize(own));
          }};
}

inline Action pool_free(const Scene& scene) {
  void* memory = nullptr;
  const cudaStream_t own = scene.own;
  MUST(cudaMallocAsync(&memory, kScratchBytes, own));
  MUST(cudaStreamSynchronize(own));
  return {[=] {
    MUST(cudaFreeAsync(memory, own));
    MUST(cudaStreamSynchronize(own));
  }};
}

inline Action pool_trim(const Scene& scene) {
  pool_free(scene).now();
  cudaMemPool_t pool = nullptr;
  MUST(cudaDeviceGetDefaultMemPool(&pool, scene.gpu));
  return {[=] { MUST(cudaMemPoolTrimTo(pool, 0)); }};
}

inline cudaMemPool_t new_pool(int gpu) {
  cudaMemPoolProps properties{};
  properties.allocType = cudaMemAllocationTypePinned;
  properties.location.type = cudaMemLocationTypeDevice;
  properties.location.id = gpu;
  cudaMemPool_t pool = nullptr;
  MUST(cudaMemPoolCreate(&pool, &properties));
  return pool;
}

inline Action pool_create(const Scene& scene) {
  auto pool = shared<cudaMemPool_t>();
  const int gpu = scene.gpu;
  return {[=] { *pool = new_pool(gpu); }, [=] { MUST(cudaMemPoolDestroy(*pool)); }};
}

inline Action pool_destroy(const Scene& scene) {
  const cudaMemPool_t pool = new_pool(scene.gpu);
  return {[=] { MUST(cudaMemPoolDestroy(pool)); }};
}

inline Action pin_now(const Scene&) {
  auto memory = shared<void*>();
  return {[=] { MUST(cudaMallocHost(memory.get(), kScratchBytes)); },
          [=] { MUST(cudaFreeHost(*memory)); }};
}

inline Action unpin_now(const Scene&) {
  void* memory = pin(kScratchBytes);
  return {[=] { MUST(cudaFreeHost(memory)); }};
}

inline Action register_now(const Scene&) {
  void* pages = map_pages();
  return {[=] { MUST(cudaHostRegister(pages, kScratchBytes, 0)); },
          [=] {
            MUST(cudaHostUnregister(pages));
            munmap(pages, kScratchBytes);
          }};
}

inline Action unregister_now(const Scene&) {
  void* pages = map_pages();
  MUST(cudaHostRegister(pages, kScratchBytes, 0));
  return {[=] { MUST(cudaHostUnregister(pages)); }, [=] { munmap(pages, kScratchBytes); }};
}

inline Action managed_allocate(const Scene&) {
  auto memory = shared<void*>();
  return {[=] { MUST(cudaMallocManaged(memory.get(), kScratchBytes)); },
          [=] { MUST(cudaFree(*memory)); }};
}

inline Action managed_free(const Scene&) {
  void* memory = nullptr;
  MUST(cudaMallocManaged(&memory, kScratchBytes));
  return {[=] { MUST(cudaFree(memory)); }};
}

inline Action array_allocate(const Scene&) {
  auto array = shared<cudaArray_t>();
  return {[=] {
            const cudaChannelFormatDesc format = cudaCreateChannelDesc<float>();
            MUST(cudaMallocArray(array.get(), &format, 1024, 1024));
          },
          [=] { MUST(cudaFreeArray(*array)); }};
}

inline Action array_free(const Scene&) {
  cudaArray_t array = nullptr;
  const cudaChannelFormatDesc format = cudaCreateChannelDesc<float>();
  MUST(cudaMallocArray(&array, &format, 1024, 1024));
  return {[=] { MUST(cudaFreeArray(array)); }};
}

/// Memory that the program maps by itself, as vLLM's sleep mode does.
struct Mapped {
  CUmemGenericAllocationHandle handle = 0;
  CUdeviceptr address = 0;

  static CUmemAllocationProp properties(int gpu, bool is_for_export) {
    CUmemAllocationProp found{};
    found.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    found.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    found.location.id = gpu;
    if (is_for_export) found.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    return found;
  }

  void make(int gpu) {
    const CUmemAllocationProp wanted = properties(gpu, false);
    CUmemAccessDesc access{wanted.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    MUST(DRIVER(cuMemCreate)(&handle, kScratchBytes, &wanted, 0));
    MUST(DRIVER(cuMemAddressReserve)(&address, kScratchBytes, 0, 0, 0));
    MUST(DRIVER(cuMemMap)(address, kScratchBytes, 0, handle, 0));
    MUST(DRIVER(cuMemSetAccess)(address, kScratchBytes, &access, 1));
  }

  void end() const {
    MUST(DRIVER(cuMemUnmap)(address, kScratchBytes));
    MUST(DRIVER(cuMemAddressFree)(address, kScratchBytes));
    MUST(DRIVER(cuMemRelease)(handle));
  }
};

inline Action map_now(const Scene& scene) {
  auto mapped = shared<Mapped>();
  const int gpu = scene.gpu;
  return {[=] { mapped->make(gpu); }, [=] { mapped->end(); }};
}

inline Action unmap_now(const Scene& scene) {
  Mapped mapped;
  mapped.make(scene.gpu);
  return {[=] { mapped.end(); }};
}

// Some machines' drivers do not export memory.
inline Action export_now(const Scene& scene) {
  const CUmemAllocationProp wanted = Mapped::properties(scene.gpu, true);
  CUmemGenericAllocationHandle handle = 0;
  if (!is_possible(DRIVER(cuMemCreate)(&handle, kScratchBytes, &wanted, 0))) return {[] {}};
  auto file = shared<int>(-1);
  return {[=] {
            (void)is_possible(DRIVER(cuMemExportToShareableHandle)(
                file.get(), handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
          },
          [=] {
            if (*file >= 0) close(*file);
            MUST(DRIVER(cuMemRelease)(handle));
          }};
}

inline Action ipc_handle(const Scene& scene) {
  void* const device = scene.device;
  return {[=] {
    cudaIpcMemHandle_t handle;
    (void)is_possible(cudaIpcGetMemHandle(&handle, device));
  }};
}

inline Action ask_memory(const Scene& scene) {
  void* const device = scene.device;
  return {[=] {
    size_t free_bytes = 0, all_bytes = 0;
    cudaPointerAttributes attributes;
    MUST(cudaMemGetInfo(&free_bytes, &all_bytes));
    MUST(cudaPointerGetAttributes(&attributes, device));
  }};
}

}  // namespace meanwhile
