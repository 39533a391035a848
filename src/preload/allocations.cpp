// The program allocates memory of a GPU. Where there is none left, a relay on that GPU may have
// some that it does not use: it gives it back, and the program's call is made once more.
#include "preload/binding.h"
#include "preload/entries.h"
#include "preload/helper.h"
#include "preload/state.h"

namespace braid::preload {
namespace {

bool give_back_on(CUdevice device) noexcept {
  multipath::Engine* open = engine();
  return open != nullptr && open->release_buffers(device) != 0;
}

bool give_back_on_current() noexcept {
  CUdevice device = 0;
  return driver()->cuCtxGetDevice(&device) == CUDA_SUCCESS && give_back_on(device);
}

// `give_back`: true if there is more memory now.
template <typename GiveBack, typename... Arguments>
CUresult allocate(HookId hook, const GiveBack& give_back, Arguments... arguments) {
  const CUresult result = forward(hook, arguments...);
  if (result != CUDA_ERROR_OUT_OF_MEMORY || is_for_driver()) return result;
  const ReentryGuard guard;
  if (!give_back()) return result;
  const CUresult second = forward(hook, arguments...);
  wake_helper();  // which gives the relay memory again, when there is room
  return second;
}

}  // namespace
}  // namespace braid::preload

using namespace braid::preload;

CUresult cuMemAlloc_v2(CUdeviceptr* address, size_t size_bytes) {
  return allocate(k_cuMemAlloc_v2, give_back_on_current, address, size_bytes);
}

CUresult cuMemAllocPitch_v2(CUdeviceptr* address, size_t* pitch_bytes, size_t width_bytes,
                            size_t height, unsigned element_bytes) {
  return allocate(k_cuMemAllocPitch_v2, give_back_on_current, address, pitch_bytes, width_bytes,
                  height, element_bytes);
}

CUresult cuMemCreate(CUmemGenericAllocationHandle* handle, size_t size_bytes,
                     const CUmemAllocationProp* properties, unsigned long long flags) {
  const auto give_back = [&] {
    CUdevice device = 0;
    return properties->location.type == CU_MEM_LOCATION_TYPE_DEVICE &&
           driver()->cuDeviceGet(&device, properties->location.id) == CUDA_SUCCESS &&
           give_back_on(device);
  };
  return allocate(k_cuMemCreate, give_back, handle, size_bytes, properties, flags);
}

// In the legacy default stream's form, and in the per-thread one's.
#define BRAID_ALLOCATE_ASYNC(symbol)                                                \
  CUresult symbol(CUdeviceptr* address, size_t size_bytes, CUstream stream) {       \
    return allocate(k_##symbol, give_back_on_current, address, size_bytes, stream); \
  }
#define BRAID_ALLOCATE_FROM_POOL(symbol)                                                         \
  CUresult symbol(CUdeviceptr* address, size_t size_bytes, CUmemoryPool pool, CUstream stream) { \
    return allocate(k_##symbol, give_back_on_current, address, size_bytes, pool, stream);        \
  }

BRAID_ALLOCATE_ASYNC(cuMemAllocAsync)
BRAID_ALLOCATE_ASYNC(cuMemAllocAsync_ptsz)
BRAID_ALLOCATE_FROM_POOL(cuMemAllocFromPoolAsync)
BRAID_ALLOCATE_FROM_POOL(cuMemAllocFromPoolAsync_ptsz)
