// The second table of hooks: the entry points of CUDA's runtime library (libcudart.so) that name a
// GPU by its number. The runtime must see every GPU that the driver has when it starts
// (cudart_start.h), and later answers from its own list. So lent GPUs (lent_gpus.h) are hidden from
// the program by hooks on the runtime's own functions. Pure.
//
// A process may hold several runtimes, of several versions, each with symbols of the same names. A
// function's ABI never changes: a new ABI gets a new name (cudaGetDeviceProperties_v2).
#pragma once

#include <cstddef>
#include <optional>
#include <span>

namespace braid::lending {

/// The runtime's return type, cudaError_t, without its header.
using CudartError = int;
inline constexpr CudartError kCudartSuccess = 0;

// Plain ints to the caller. The types say how cudart.cpp treats them.
enum class Gpu : int {};       ///< a GPU's number: a lent one is none
enum class GpuCount : int {};  ///< how many there are

// X(symbol, parameters, arguments)
#define BRAID_CUDART_HOOKS(X)                                                                   \
  X(cudaGetDeviceCount, (GpuCount * count), (count))                                            \
  X(cudaSetDevice, (Gpu gpu), (gpu))                                                            \
  X(cudaInitDevice, (Gpu gpu, unsigned flags, unsigned how), (gpu, flags, how))                 \
  X(cudaSetValidDevices, (const Gpu* gpus, int count), (gpus, count))                           \
  X(cudaChooseDevice, (Gpu * chosen, const void* wishes), (chosen, wishes))                     \
  X(cudaGetDeviceProperties, (void* out, Gpu gpu), (out, gpu))                                  \
  X(cudaGetDeviceProperties_v2, (void* out, Gpu gpu), (out, gpu))                               \
  X(cudaDeviceGetAttribute, (int* out, int attribute, Gpu gpu), (out, attribute, gpu))          \
  X(cudaDeviceGetPCIBusId, (char* out, int size, Gpu gpu), (out, size, gpu))                    \
  X(cudaDeviceGetByPCIBusId, (Gpu * found, const char* address), (found, address))              \
  X(cudaDeviceGetTexture1DLinearMaxWidth, (size_t * out, const void* format, Gpu gpu),          \
    (out, format, gpu))                                                                         \
  X(cudaDeviceGetNvSciSyncAttributes, (void* out, Gpu gpu, int flags), (out, gpu, flags))       \
  X(cudaDeviceGetHostAtomicCapabilities,                                                        \
    (unsigned* out, const void* operations, unsigned count, Gpu gpu),                           \
    (out, operations, count, gpu))                                                              \
  X(cudaDeviceGetP2PAtomicCapabilities,                                                         \
    (unsigned* out, const void* operations, unsigned count, Gpu from, Gpu to),                  \
    (out, operations, count, from, to))                                                         \
  X(cudaDeviceGetP2PAttribute, (int* out, int attribute, Gpu from, Gpu to),                     \
    (out, attribute, from, to))                                                                 \
  X(cudaDeviceCanAccessPeer, (int* possible, Gpu gpu, Gpu peer), (possible, gpu, peer))         \
  X(cudaDeviceEnablePeerAccess, (Gpu peer, unsigned flags), (peer, flags))                      \
  X(cudaDeviceDisablePeerAccess, (Gpu peer), (peer))                                            \
  X(cudaDeviceGetDefaultMemPool, (void** pool, Gpu gpu), (pool, gpu))                           \
  X(cudaDeviceGetMemPool, (void** pool, Gpu gpu), (pool, gpu))                                  \
  X(cudaDeviceSetMemPool, (Gpu gpu, void* pool), (gpu, pool))                                   \
  X(cudaDeviceGraphMemTrim, (Gpu gpu), (gpu))                                                   \
  X(cudaDeviceGetGraphMemAttribute, (Gpu gpu, int attribute, void* out), (gpu, attribute, out)) \
  X(cudaDeviceSetGraphMemAttribute, (Gpu gpu, int attribute, void* value),                      \
    (gpu, attribute, value))                                                                    \
  X(cudaDeviceRegisterAsyncNotification, (Gpu gpu, void* function, void* data, void** handle),  \
    (gpu, function, data, handle))                                                              \
  X(cudaDeviceUnregisterAsyncNotification, (Gpu gpu, void* handle), (gpu, handle))

// k_cudaSetDevice and so on.
#define BRAID_CUDART_HOOK_ID(symbol, ...) k_##symbol,
enum CudartHookId : int { BRAID_CUDART_HOOKS(BRAID_CUDART_HOOK_ID) kCudartHookCount };
#undef BRAID_CUDART_HOOK_ID

/// In the order of CudartHookId.
std::span<const char* const, kCudartHookCount> cudart_hooks();

/// True for names that may be in the table: "cuda" and a capital. Cheap, for every dlsym.
bool is_cudart_name(const char* name);

std::optional<CudartHookId> find_cudart_symbol(const char* symbol);

}  // namespace braid::lending
