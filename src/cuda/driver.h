// The CUDA driver as one table of functions: the first of braid's three seams. The table is filled
// from whatever library is opened as libcuda.so.1, NVIDIA's or the emulated server's, so everything
// above this file is the same code on both. Nothing in braid links libcuda.
//
// A Driver is immutable after loading and safe to use from any thread. Calls report CUresult, as
// the driver does; `describe` turns one into words.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <functional>
#include <string>

#include "base/clock.h"
#include "base/status.h"

namespace braid::cuda {

// Every driver function that braid, its command and its tests call. cuda.h maps each name to its
// versioned symbol.
// clang-format off
#define BRAID_DRIVER_FUNCTIONS(X) \
  X(cuInit) X(cuDriverGetVersion) X(cuGetErrorName) X(cuGetErrorString) X(cuDeviceGet) \
  X(cuDeviceGetCount) X(cuDeviceGetName) X(cuDeviceGetAttribute) X(cuDeviceGetPCIBusId) \
  X(cuDeviceTotalMem) X(cuDeviceGetUuid) X(cuDeviceCanAccessPeer) X(cuDeviceGetP2PAttribute) \
  X(cuDevicePrimaryCtxRetain) X(cuDevicePrimaryCtxRelease) X(cuDevicePrimaryCtxGetState) \
  X(cuCtxGetCurrent) X(cuCtxSetCurrent) X(cuCtxPushCurrent) X(cuCtxPopCurrent) X(cuCtxGetDevice) \
  X(cuCtxSynchronize) X(cuCtxEnablePeerAccess) X(cuCtxGetStreamPriorityRange) X(cuCtxDestroy) \
  X(cuCtxSetLimit) \
  X(cuThreadExchangeStreamCaptureMode) X(cuStreamCreate) X(cuStreamCreateWithPriority) \
  X(cuStreamDestroy) X(cuStreamSynchronize) X(cuStreamQuery) X(cuStreamWaitEvent) \
  X(cuStreamIsCapturing) X(cuStreamGetPriority) X(cuStreamWaitValue32) X(cuStreamWriteValue32) X(cuStreamBatchMemOp) X(cuStreamGetCtx) X(cuStreamGetId) \
  X(cuEventCreate) X(cuEventDestroy) X(cuEventRecord) X(cuEventQuery) X(cuEventSynchronize) \
  X(cuEventElapsedTime) X(cuMemAlloc) X(cuMemFree) X(cuMemGetInfo) X(cuMemHostAlloc) \
  X(cuMemFreeHost) X(cuMemHostRegister) X(cuMemHostUnregister) X(cuMemHostGetDevicePointer) \
  X(cuMemcpyAsync) X(cuMemcpyHtoD) X(cuMemcpyDtoH) X(cuMemcpyHtoDAsync) X(cuMemcpyDtoHAsync) \
  X(cuMemcpyPeerAsync) X(cuMemcpyDtoDAsync) X(cuMemcpy2DAsync) \
  X(cuMemCreate) X(cuMemRelease) X(cuMemAddressReserve) X(cuMemAddressFree) X(cuMemMap) \
  X(cuMemUnmap) X(cuMemGetAllocationGranularity) X(cuMemGetAccess) X(cuMemSetAccess) X(cuMemPoolGetAccess) X(cuMemPoolSetAccess) \
  X(cuDeviceGetDefaultMemPool) \
  X(cuMemRetainAllocationHandle) X(cuMemExportToShareableHandle) X(cuMemImportFromShareableHandle) \
  X(cuIpcGetMemHandle) X(cuIpcOpenMemHandle) X(cuIpcCloseMemHandle) \
  X(cuMemsetD8) X(cuMemsetD8Async) X(cuPointerGetAttribute) X(cuPointerGetAttributes) \
  X(cuModuleLoadData) X(cuModuleUnload) X(cuModuleGetFunction) X(cuFuncSetAttribute) \
  X(cuLaunchKernel) X(cuLaunchKernelEx)
// clang-format on

struct Driver {
#define BRAID_DECLARE(name) decltype(&::name) name = nullptr;
  BRAID_DRIVER_FUNCTIONS(BRAID_DECLARE)
#undef BRAID_DECLARE

  /// The library's virtual clock if it exports one (braidClockNow), else the system's. Never null,
  /// never freed.
  Clock* clock = &system_clock();

  /// cuMemcpyBatchAsync in its first form, which every driver since 12.8 exports; null in older
  /// ones. It has a name of its own, since cuda.h may map the driver's name to another form.
  CUresult (*copy_batch)(CUdeviceptr* to, CUdeviceptr* from, size_t* sizes, size_t count,
                         CUmemcpyAttributes* attributes, size_t* first_copies,
                         size_t attribute_count, size_t* failed_copy, CUstream stream) = nullptr;

  /// Written by a debugger: the number of its session, 0 if there is none. Null in a driver without
  /// it.
  const volatile uint32_t* debugger_session = nullptr;

  /// cuCtxCreate in the form that every driver exports (cuCtxCreate_v2): cuda.h may map the name to
  /// another one. Makes the context current.
  CUresult (*create_context)(CUcontext* context, unsigned flags, CUdevice device) = nullptr;

  /// "CUDA_ERROR_INVALID_VALUE (invalid argument)".
  std::string describe(CUresult result) const;

  /// Success, or an error that names the action: "cuMemAlloc of 64 MB on GPU 2: <result>".
  Status check(CUresult result, const std::string& doing) const;
};

/// Finds a symbol of the opened driver library; null when it has none.
using SymbolLookup = std::function<void*(const char* name)>;

/// Fills the table. Fails with the name of the first function that the driver lacks. A process
/// opens one driver: the clock of the first library is used in every later table.
Result<Driver> load_driver(const SymbolLookup& lookup);

/// Opens `library` (a path, or a name that the loader finds) and fills the table from it. The
/// library stays open for the life of the process: CUDA cannot be unloaded.
Result<Driver> open_driver(const std::string& library = "libcuda.so.1");

}  // namespace braid::cuda
