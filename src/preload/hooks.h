// The table of hooks: every driver entry point that libbraid_preload.so replaces, with the names,
// versions and flags by which a program asks for it. One table drives the library's exports,
// `dlsym`, `cuGetProcAddress` and the list of `braid doctor`. Pure: no driver, no state, no
// allocation. (lending/cudart_hooks.h is the same for CUDA's runtime library.)
//
// A program reaches an entry point in two ways. By symbol ("cuMemcpyHtoD_v2"), linked or through
// dlsym: one symbol is one ABI. Or by base name ("cuMemcpyHtoD") with a version and flags through
// cuGetProcAddress: the driver chooses the ABI, and braid must name the same one or stay out.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

namespace braid::preload {

/// Which cuGetProcAddress flags lead to an entry point.
enum class Flags : uint8_t {
  kAny,        ///< no stream is involved
  kLegacy,     ///< 0 (default) and 1 (legacy stream)
  kPerThread,  ///< 2 (per-thread default stream)
};

enum class HookKind : uint8_t {
  kResolver,  ///< returns entry points
  kCopy,      ///< a copy of any shape: counted, and accelerated where it can be
  kPin,       ///< pins host memory: if the user has asked for it, relays open then
  kContext,   ///< makes or ends a context
  kAccess,    ///< access to mapped memory and pools, which braid's relays need too
  kMemory,    ///< allocates GPU memory: a relay may have some to free
  kDevice,    ///< lists GPUs: the program does not see lent ones (src/lending)
};

struct Hook {
  const char* symbol;
  const char* base_name;  ///< the name that cuGetProcAddress is called with
  int since;              ///< first version with this entry; kUnversioned: see below
  int until;              ///< first version without it
  Flags flags;
  HookKind kind;
};

/// The version alone does not determine the ABI that the driver returns (cuCtxCreate: drivers
/// differ). Such a hook is found only by the address that the driver returned.
inline constexpr int kUnversioned = -1;
inline constexpr int kNoEnd = 1 << 30;

// The 32-bit first ABIs (plain cuMemcpyHtoD and cuDeviceTotalMem, below 3020) are left alone.
// X(symbol, base name, since, until, flags, kind)
#define BRAID_HOOKS(X)                                                                           \
  X(cuGetProcAddress, "cuGetProcAddress", 11030, 12000, kAny, kResolver)                         \
  X(cuGetProcAddress_v2, "cuGetProcAddress", 12000, kNoEnd, kAny, kResolver)                     \
  X(cuMemcpyHtoD_v2, "cuMemcpyHtoD", 3020, kNoEnd, kLegacy, kCopy)                               \
  X(cuMemcpyHtoD_v2_ptds, "cuMemcpyHtoD", 7000, kNoEnd, kPerThread, kCopy)                       \
  X(cuMemcpyDtoH_v2, "cuMemcpyDtoH", 3020, kNoEnd, kLegacy, kCopy)                               \
  X(cuMemcpyDtoH_v2_ptds, "cuMemcpyDtoH", 7000, kNoEnd, kPerThread, kCopy)                       \
  X(cuMemcpyHtoDAsync_v2, "cuMemcpyHtoDAsync", 3020, kNoEnd, kLegacy, kCopy)                     \
  X(cuMemcpyHtoDAsync_v2_ptsz, "cuMemcpyHtoDAsync", 7000, kNoEnd, kPerThread, kCopy)             \
  X(cuMemcpyDtoHAsync_v2, "cuMemcpyDtoHAsync", 3020, kNoEnd, kLegacy, kCopy)                     \
  X(cuMemcpyDtoHAsync_v2_ptsz, "cuMemcpyDtoHAsync", 7000, kNoEnd, kPerThread, kCopy)             \
  X(cuMemcpy, "cuMemcpy", 4000, kNoEnd, kLegacy, kCopy)                                          \
  X(cuMemcpy_ptds, "cuMemcpy", 7000, kNoEnd, kPerThread, kCopy)                                  \
  X(cuMemcpyAsync, "cuMemcpyAsync", 4000, kNoEnd, kLegacy, kCopy)                                \
  X(cuMemcpyAsync_ptsz, "cuMemcpyAsync", 7000, kNoEnd, kPerThread, kCopy)                        \
  X(cuMemcpy2D_v2, "cuMemcpy2D", 3020, kNoEnd, kLegacy, kCopy)                                   \
  X(cuMemcpy2D_v2_ptds, "cuMemcpy2D", 7000, kNoEnd, kPerThread, kCopy)                           \
  X(cuMemcpy2DUnaligned_v2, "cuMemcpy2DUnaligned", 3020, kNoEnd, kLegacy, kCopy)                 \
  X(cuMemcpy2DUnaligned_v2_ptds, "cuMemcpy2DUnaligned", 7000, kNoEnd, kPerThread, kCopy)         \
  X(cuMemcpy3D_v2, "cuMemcpy3D", 3020, kNoEnd, kLegacy, kCopy)                                   \
  X(cuMemcpy3D_v2_ptds, "cuMemcpy3D", 7000, kNoEnd, kPerThread, kCopy)                           \
  X(cuMemcpy2DAsync_v2, "cuMemcpy2DAsync", 3020, kNoEnd, kLegacy, kCopy)                         \
  X(cuMemcpy2DAsync_v2_ptsz, "cuMemcpy2DAsync", 7000, kNoEnd, kPerThread, kCopy)                 \
  X(cuMemcpy3DAsync_v2, "cuMemcpy3DAsync", 3020, kNoEnd, kLegacy, kCopy)                         \
  X(cuMemcpy3DAsync_v2_ptsz, "cuMemcpy3DAsync", 7000, kNoEnd, kPerThread, kCopy)                 \
  X(cuMemcpyBatchAsync, "cuMemcpyBatchAsync", 12080, 13000, kLegacy, kCopy)                      \
  X(cuMemcpyBatchAsync_ptsz, "cuMemcpyBatchAsync", 12080, 13000, kPerThread, kCopy)              \
  X(cuMemcpyBatchAsync_v2, "cuMemcpyBatchAsync", 13000, kNoEnd, kLegacy, kCopy)                  \
  X(cuMemcpyBatchAsync_v2_ptsz, "cuMemcpyBatchAsync", 13000, kNoEnd, kPerThread, kCopy)          \
  X(cuMemcpy3DBatchAsync, "cuMemcpy3DBatchAsync", 12080, 13000, kLegacy, kCopy)                  \
  X(cuMemcpy3DBatchAsync_ptsz, "cuMemcpy3DBatchAsync", 12080, 13000, kPerThread, kCopy)          \
  X(cuMemcpy3DBatchAsync_v2, "cuMemcpy3DBatchAsync", 13000, kNoEnd, kLegacy, kCopy)              \
  X(cuMemcpy3DBatchAsync_v2_ptsz, "cuMemcpy3DBatchAsync", 13000, kNoEnd, kPerThread, kCopy)      \
  X(cuMemHostAlloc, "cuMemHostAlloc", 2020, kNoEnd, kAny, kPin)                                  \
  X(cuMemAllocHost, "cuMemAllocHost", 2000, 3020, kAny, kPin)                                    \
  X(cuMemAllocHost_v2, "cuMemAllocHost", 3020, kNoEnd, kAny, kPin)                               \
  X(cuMemHostRegister, "cuMemHostRegister", 4000, 6050, kAny, kPin)                              \
  X(cuMemHostRegister_v2, "cuMemHostRegister", 6050, kNoEnd, kAny, kPin)                         \
  X(cuCtxCreate_v2, "cuCtxCreate", kUnversioned, kUnversioned, kAny, kContext)                   \
  X(cuCtxCreate_v3, "cuCtxCreate", kUnversioned, kUnversioned, kAny, kContext)                   \
  X(cuCtxCreate_v4, "cuCtxCreate", kUnversioned, kUnversioned, kAny, kContext)                   \
  X(cuDevicePrimaryCtxRetain, "cuDevicePrimaryCtxRetain", 7000, kNoEnd, kAny, kContext)          \
  X(cuCtxDestroy, "cuCtxDestroy", 2000, 4000, kAny, kContext)                                    \
  X(cuCtxDestroy_v2, "cuCtxDestroy", 4000, kNoEnd, kAny, kContext)                               \
  X(cuCtxDetach, "cuCtxDetach", 2000, kNoEnd, kAny, kContext)                                    \
  X(cuDevicePrimaryCtxReset, "cuDevicePrimaryCtxReset", 7000, 11000, kAny, kContext)             \
  X(cuDevicePrimaryCtxReset_v2, "cuDevicePrimaryCtxReset", 11000, kNoEnd, kAny, kContext)        \
  X(cuDevicePrimaryCtxRelease, "cuDevicePrimaryCtxRelease", 7000, 11000, kAny, kContext)         \
  X(cuDevicePrimaryCtxRelease_v2, "cuDevicePrimaryCtxRelease", 11000, kNoEnd, kAny, kContext)    \
  X(cuDevicePrimaryCtxGetState, "cuDevicePrimaryCtxGetState", 7000, kNoEnd, kAny, kContext)      \
  X(cuMemSetAccess, "cuMemSetAccess", 10020, kNoEnd, kAny, kAccess)                              \
  X(cuMemGetAccess, "cuMemGetAccess", 10020, kNoEnd, kAny, kAccess)                              \
  X(cuMemUnmap, "cuMemUnmap", 10020, kNoEnd, kAny, kAccess)                                      \
  X(cuMemPoolCreate, "cuMemPoolCreate", 11020, kNoEnd, kAny, kAccess)                            \
  X(cuMemPoolDestroy, "cuMemPoolDestroy", 11020, kNoEnd, kAny, kAccess)                          \
  X(cuMemPoolSetAccess, "cuMemPoolSetAccess", 11020, kNoEnd, kAny, kAccess)                      \
  X(cuMemPoolGetAccess, "cuMemPoolGetAccess", 11020, kNoEnd, kAny, kAccess)                      \
  X(cuMemAlloc_v2, "cuMemAlloc", 3020, kNoEnd, kAny, kMemory)                                    \
  X(cuMemAllocPitch_v2, "cuMemAllocPitch", 3020, kNoEnd, kAny, kMemory)                          \
  X(cuMemCreate, "cuMemCreate", 10020, kNoEnd, kAny, kMemory)                                    \
  X(cuMemAllocAsync, "cuMemAllocAsync", 11020, kNoEnd, kLegacy, kMemory)                         \
  X(cuMemAllocAsync_ptsz, "cuMemAllocAsync", 11020, kNoEnd, kPerThread, kMemory)                 \
  X(cuMemAllocFromPoolAsync, "cuMemAllocFromPoolAsync", 11020, kNoEnd, kLegacy, kMemory)         \
  X(cuMemAllocFromPoolAsync_ptsz, "cuMemAllocFromPoolAsync", 11020, kNoEnd, kPerThread, kMemory) \
  X(cuInit, "cuInit", 2000, kNoEnd, kAny, kDevice)                                               \
  X(cuGetExportTable, "cuGetExportTable", 3000, kNoEnd, kAny, kDevice)                           \
  X(cuDeviceGet, "cuDeviceGet", 2000, kNoEnd, kAny, kDevice)                                     \
  X(cuDeviceGetCount, "cuDeviceGetCount", 2000, kNoEnd, kAny, kDevice)                           \
  X(cuDeviceGetName, "cuDeviceGetName", 2000, kNoEnd, kAny, kDevice)                             \
  X(cuDeviceGetUuid, "cuDeviceGetUuid", 9020, 11040, kAny, kDevice)                              \
  X(cuDeviceGetUuid_v2, "cuDeviceGetUuid", 11040, kNoEnd, kAny, kDevice)                         \
  X(cuDeviceTotalMem_v2, "cuDeviceTotalMem", 3020, kNoEnd, kAny, kDevice)                        \
  X(cuDeviceGetAttribute, "cuDeviceGetAttribute", 2000, kNoEnd, kAny, kDevice)                   \
  X(cuDeviceGetProperties, "cuDeviceGetProperties", 2000, kNoEnd, kAny, kDevice)                 \
  X(cuDeviceComputeCapability, "cuDeviceComputeCapability", 2000, kNoEnd, kAny, kDevice)         \
  X(cuDeviceGetPCIBusId, "cuDeviceGetPCIBusId", 4010, kNoEnd, kAny, kDevice)                     \
  X(cuDeviceGetByPCIBusId, "cuDeviceGetByPCIBusId", 4010, kNoEnd, kAny, kDevice)                 \
  X(cuDeviceCanAccessPeer, "cuDeviceCanAccessPeer", 4000, kNoEnd, kAny, kDevice)                 \
  X(cuDeviceGetP2PAttribute, "cuDeviceGetP2PAttribute", 8000, kNoEnd, kAny, kDevice)             \
  X(cuDevicePrimaryCtxSetFlags, "cuDevicePrimaryCtxSetFlags", 7000, 11000, kAny, kDevice)        \
  X(cuDevicePrimaryCtxSetFlags_v2, "cuDevicePrimaryCtxSetFlags", 11000, kNoEnd, kAny, kDevice)   \
  X(cuDeviceGetDefaultMemPool, "cuDeviceGetDefaultMemPool", 11020, kNoEnd, kAny, kDevice)        \
  X(cuDeviceGetMemPool, "cuDeviceGetMemPool", 11020, kNoEnd, kAny, kDevice)                      \
  X(cuDeviceSetMemPool, "cuDeviceSetMemPool", 11020, kNoEnd, kAny, kDevice)

/// A hook's number in the table: k_cuMemcpyHtoD_v2 and so on.
#define BRAID_HOOK_ID(symbol, ...) k_##symbol,
enum HookId : int { BRAID_HOOKS(BRAID_HOOK_ID) kHookCount };
#undef BRAID_HOOK_ID

/// In the order of HookId.
std::span<const Hook, kHookCount> hooks();

/// True for names that may be in the table: "cu" and a capital. Cheap, for every dlsym of a
/// program; cuDNN's and cuBLAS's names ("cudnn...", "cublas...") are not the driver's.
bool is_driver_name(const char* name);

/// The hook of this symbol, for linking or dlsym.
std::optional<HookId> find_symbol(const char* symbol);

/// The hook for the driver's answer `returned` to a request (base name, version, flags). `real[id]`
/// is the address of each hook's symbol in the driver, null if it has none.
///
/// If the answer is one of those addresses, that is the hook. Otherwise (a resolver may return
/// addresses of its own) the table must know the request, with a version no newer than
/// `newest_version`: a later CUDA may give the same name another ABI.
std::optional<HookId> resolve(const char* base_name, int version, uint64_t flags,
                              const void* returned, std::span<void* const, kHookCount> real,
                              int newest_version);

}  // namespace braid::preload
