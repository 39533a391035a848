// The exported entry points, under the driver's own symbol names. cuda.h renames some of these
// names to the newest version; here each name means the symbol itself. Where cuda.h declares the
// same symbol, the compiler compares the definition with it.
#pragma once

#include <cuda.h>

#include "cuda/driver.h"  // before the names change: it means the newest versions
#include "preload/hooks.h"

#undef cuGetProcAddress
#undef cuMemcpy
#undef cuMemcpyAsync
#undef cuMemcpy2D
#undef cuMemcpy2DUnaligned
#undef cuMemcpy2DAsync
#undef cuMemcpy3D
#undef cuMemcpy3DAsync
#undef cuMemcpyBatchAsync
#undef cuMemcpy3DBatchAsync
#undef cuMemAllocAsync
#undef cuMemAllocFromPoolAsync
#undef cuMemAllocHost
#undef cuMemHostRegister
#undef cuCtxDestroy
#undef cuDevicePrimaryCtxReset
#undef cuDevicePrimaryCtxRelease
#undef cuDevicePrimaryCtxSetFlags
#undef cuDeviceGetUuid

#pragma GCC visibility push(default)
// Programs may still use entry points that cuda.h advises against.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
extern "C" {

// Functions that cuda.h declares in some versions only (12.8 is the oldest that braid is built
// with).
CUresult cuGetProcAddress(const char* symbol, void** function, int version, cuuint64_t flags);
// Before CUDA 13 the batch calls returned which entry was wrong.
CUresult cuMemcpyBatchAsync(CUdeviceptr* to, CUdeviceptr* from, size_t* sizes, size_t count,
                            CUmemcpyAttributes* attributes, size_t* starts, size_t attribute_count,
                            size_t* fail_index, CUstream stream);
CUresult cuMemcpyBatchAsync_v2(CUdeviceptr* to, CUdeviceptr* from, size_t* sizes, size_t count,
                               CUmemcpyAttributes* attributes, size_t* starts,
                               size_t attribute_count, CUstream stream);
CUresult cuMemcpy3DBatchAsync(size_t count, CUDA_MEMCPY3D_BATCH_OP* boxes, size_t* fail_index,
                              unsigned long long flags, CUstream stream);
CUresult cuMemcpy3DBatchAsync_v2(size_t count, CUDA_MEMCPY3D_BATCH_OP* boxes,
                                 unsigned long long flags, CUstream stream);
CUresult cuMemAllocHost(void** memory, unsigned size_bytes);
CUresult cuCtxCreate_v2(CUcontext* context, unsigned flags, CUdevice device);
CUresult cuCtxCreate_v3(CUcontext* context, CUexecAffinityParam* affinities, int count,
                        unsigned flags, CUdevice device);
CUresult cuCtxCreate_v4(CUcontext* context, CUctxCreateParams* parameters, unsigned flags,
                        CUdevice device);
decltype(cuMemHostRegister_v2) cuMemHostRegister;
decltype(cuCtxDestroy_v2) cuCtxDestroy;
decltype(cuDevicePrimaryCtxReset_v2) cuDevicePrimaryCtxReset;
decltype(cuDevicePrimaryCtxRelease_v2) cuDevicePrimaryCtxRelease;
decltype(cuDevicePrimaryCtxSetFlags_v2) cuDevicePrimaryCtxSetFlags;
decltype(cuDeviceGetUuid_v2) cuDeviceGetUuid;

// The forms for the per-thread default stream.
decltype(cuMemcpyHtoD_v2) cuMemcpyHtoD_v2_ptds;
decltype(cuMemcpyDtoH_v2) cuMemcpyDtoH_v2_ptds;
decltype(cuMemcpyHtoDAsync_v2) cuMemcpyHtoDAsync_v2_ptsz;
decltype(cuMemcpyDtoHAsync_v2) cuMemcpyDtoHAsync_v2_ptsz;
decltype(cuMemcpy) cuMemcpy_ptds;
decltype(cuMemcpyAsync) cuMemcpyAsync_ptsz;
decltype(cuMemcpy2D_v2) cuMemcpy2D_v2_ptds;
decltype(cuMemcpy2DUnaligned_v2) cuMemcpy2DUnaligned_v2_ptds;
decltype(cuMemcpy3D_v2) cuMemcpy3D_v2_ptds;
decltype(cuMemcpy2DAsync_v2) cuMemcpy2DAsync_v2_ptsz;
decltype(cuMemcpy3DAsync_v2) cuMemcpy3DAsync_v2_ptsz;
decltype(cuMemcpyBatchAsync) cuMemcpyBatchAsync_ptsz;
decltype(cuMemcpyBatchAsync_v2) cuMemcpyBatchAsync_v2_ptsz;
decltype(cuMemcpy3DBatchAsync) cuMemcpy3DBatchAsync_ptsz;
decltype(cuMemcpy3DBatchAsync_v2) cuMemcpy3DBatchAsync_v2_ptsz;
decltype(cuMemAllocAsync) cuMemAllocAsync_ptsz;
decltype(cuMemAllocFromPoolAsync) cuMemAllocFromPoolAsync_ptsz;

// Declares all the others again, for their visibility.
#define BRAID_DECLARE(symbol, ...) decltype(symbol) symbol;
BRAID_HOOKS(BRAID_DECLARE)
#undef BRAID_DECLARE

}  // extern "C"
#pragma GCC diagnostic pop
#pragma GCC visibility pop

namespace braid::preload {

/// The exported function of a hook, to hand to the program in place of the driver's.
void* replacement(HookId hook);

}  // namespace braid::preload
