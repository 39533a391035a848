// The driver's entry points that programs call, found as a program finds them: by name in
// libcuda.so.1. Whether that is the driver's own function or braid's is not this code's business.
#pragma once

#include <cuda.h>

#include <stdexcept>
#include <string>

#include "stress/program.h"

namespace braid::stress {

/// Both forms of a call with a stream: [0] the null stream is legacy, [1] it is the thread's own.
template <typename Function>
struct Forms {
  Function of[2];
  Function operator[](bool per_thread) const { return of[per_thread ? 1 : 0]; }
};

// CUDA 12.8's batches say which entry was wrong; cuda.h declares only the newest form.
using BatchFirst = CUresult (*)(CUdeviceptr*, CUdeviceptr*, size_t*, size_t, CUmemcpyAttributes*,
                                size_t*, size_t, size_t*, CUstream);
using Batch = CUresult (*)(CUdeviceptr*, CUdeviceptr*, size_t*, size_t, CUmemcpyAttributes*,
                           size_t*, size_t, CUstream);
using BoxesFirst = CUresult (*)(size_t, CUDA_MEMCPY3D_BATCH_OP*, size_t*, unsigned long long,
                                CUstream);
using Boxes = CUresult (*)(size_t, CUDA_MEMCPY3D_BATCH_OP*, unsigned long long, CUstream);

// X(member, symbol)
#define STRESS_CALLS(X)                               \
  X(init, cuInit)                                     \
  X(get_device, cuDeviceGet)                          \
  X(get_count, cuDeviceGetCount)                      \
  X(retain_primary, cuDevicePrimaryCtxRetain)         \
  X(reset_primary, cuDevicePrimaryCtxReset_v2)        \
  X(set_current, cuCtxSetCurrent)                     \
  X(get_current, cuCtxGetCurrent)                     \
  X(exchange_mode, cuThreadExchangeStreamCaptureMode) \
  X(load_module, cuModuleLoadData)                    \
  X(get_function, cuModuleGetFunction)                \
  X(launch, cuLaunchKernel)                           \
  X(sync_context, cuCtxSynchronize)                   \
  X(memory_info, cuMemGetInfo_v2)                     \
  X(allocate, cuMemAlloc_v2)                          \
  X(free, cuMemFree_v2)                               \
  X(allocate_managed, cuMemAllocManaged)              \
  X(allocate_async, cuMemAllocAsync)                  \
  X(free_async, cuMemFreeAsync)                       \
  X(pin, cuMemHostAlloc)                              \
  X(unpin, cuMemFreeHost)                             \
  X(register_host, cuMemHostRegister_v2)              \
  X(unregister_host, cuMemHostUnregister)             \
  X(reserve, cuMemAddressReserve)                     \
  X(free_address, cuMemAddressFree)                   \
  X(create, cuMemCreate)                              \
  X(release, cuMemRelease)                            \
  X(map, cuMemMap)                                    \
  X(unmap, cuMemUnmap)                                \
  X(set_access, cuMemSetAccess)                       \
  X(granularity, cuMemGetAllocationGranularity)       \
  X(create_stream, cuStreamCreateWithPriority)        \
  X(destroy_stream, cuStreamDestroy_v2)               \
  X(create_event, cuEventCreate)                      \
  X(destroy_event, cuEventDestroy_v2)                 \
  X(query_event, cuEventQuery)                        \
  X(sync_event, cuEventSynchronize)                   \
  X(elapsed, cuEventElapsedTime_v2)                   \
  X(record, cuEventRecord)                            \
  X(wait, cuStreamWaitEvent)                          \
  X(sync_stream, cuStreamSynchronize)                 \
  X(query_stream, cuStreamQuery)                      \
  X(call_host, cuLaunchHostFunc)                      \
  X(wait_value, cuStreamWaitValue32_v2)               \
  X(write_value, cuStreamWriteValue32_v2)             \
  X(fill_bytes, cuMemsetD8Async)                      \
  X(fill_words, cuMemsetD32Async)                     \
  X(begin_capture, cuStreamBeginCapture_v2)           \
  X(end_capture, cuStreamEndCapture)                  \
  X(instantiate, cuGraphInstantiateWithFlags)         \
  X(launch_graph, cuGraphLaunch)                      \
  X(destroy_graph, cuGraphDestroy)                    \
  X(destroy_executable, cuGraphExecDestroy)

// X(member, type, symbol, suffix of the per-thread form)
#define STRESS_COPY_CALLS(X)                                                                \
  X(up, decltype(&::cuMemcpyHtoD_v2), "cuMemcpyHtoD_v2", "_ptds")                           \
  X(down, decltype(&::cuMemcpyDtoH_v2), "cuMemcpyDtoH_v2", "_ptds")                         \
  X(any, decltype(&::cuMemcpy), "cuMemcpy", "_ptds")                                        \
  X(rows, decltype(&::cuMemcpy2D_v2), "cuMemcpy2D_v2", "_ptds")                             \
  X(rows_unaligned, decltype(&::cuMemcpy2DUnaligned_v2), "cuMemcpy2DUnaligned_v2", "_ptds") \
  X(layers, decltype(&::cuMemcpy3D_v2), "cuMemcpy3D_v2", "_ptds")                           \
  X(up_async, decltype(&::cuMemcpyHtoDAsync_v2), "cuMemcpyHtoDAsync_v2", "_ptsz")           \
  X(down_async, decltype(&::cuMemcpyDtoHAsync_v2), "cuMemcpyDtoHAsync_v2", "_ptsz")         \
  X(any_async, decltype(&::cuMemcpyAsync), "cuMemcpyAsync", "_ptsz")                        \
  X(rows_async, decltype(&::cuMemcpy2DAsync_v2), "cuMemcpy2DAsync_v2", "_ptsz")             \
  X(layers_async, decltype(&::cuMemcpy3DAsync_v2), "cuMemcpy3DAsync_v2", "_ptsz")           \
  X(batch_first, BatchFirst, "cuMemcpyBatchAsync", "_ptsz")                                 \
  X(batch, Batch, "cuMemcpyBatchAsync_v2", "_ptsz")                                         \
  X(boxes_first, BoxesFirst, "cuMemcpy3DBatchAsync", "_ptsz")                               \
  X(boxes, Boxes, "cuMemcpy3DBatchAsync_v2", "_ptsz")

struct Calls {
#define STRESS_MEMBER(member, symbol) decltype(&::symbol) member;
  STRESS_CALLS(STRESS_MEMBER)
#undef STRESS_MEMBER
#define STRESS_MEMBER(member, type, symbol, suffix) Forms<type> member;
  STRESS_COPY_CALLS(STRESS_MEMBER)
#undef STRESS_MEMBER
  bool is_emulated;
};

/// Opens the driver; throws when it lacks a call.
Calls open_calls();
/// What programs may use here: 4 GPUs at most. Starts the driver.
Machine machine_of(const Calls& calls);

/// For calls that are no part of what is compared: throws with the call's words.
inline void must(CUresult result, const char* what) {
  if (result != CUDA_SUCCESS)
    throw std::runtime_error(std::string(what) + ": error " + std::to_string(result));
}

}  // namespace braid::stress
