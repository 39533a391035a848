// The linear copies.
#include "preload/entries.h"
#include "preload/intercept.h"

namespace braid::preload {
namespace {

using multipath::Direction;

CUdeviceptr address(const void* pointer) { return reinterpret_cast<CUdeviceptr>(pointer); }
CUdeviceptr address(CUdeviceptr pointer) { return pointer; }

// Which way a copy goes: the types say it, or the driver is asked.
std::optional<Direction> direction_of(Interception&, CUdeviceptr, const void*) {
  return Direction::kHostToDevice;
}
std::optional<Direction> direction_of(Interception&, void*, CUdeviceptr) {
  return Direction::kDeviceToHost;
}
std::optional<Direction> direction_of(Interception& call, CUdeviceptr to, CUdeviceptr from) {
  return call.find_direction(to, from);
}

// `stream`: as the engine is told; the native call has its own among the arguments.
template <typename To, typename From, typename... Arguments>
CUresult copy(HookId hook, Wait wait, CUstream stream, To to, From from, size_t size_bytes,
              Arguments... rest) {
  Interception call(hook, wait, size_bytes);
  if (call.may_gain(least_bytes()))
    if (const auto way = direction_of(call, to, from))
      call.offer({*way, segment_of(*way, address(to), address(from), size_bytes), stream});
  return call.finish(to, from, size_bytes, rest...);
}

}  // namespace
}  // namespace braid::preload

using namespace braid::preload;

// Each in the legacy default stream's form, and in the per-thread one's.
#define BRAID_COPY(symbol, To, From)                                                        \
  CUresult symbol(To to, From from, size_t size_bytes) {                                    \
    return copy(k_##symbol, Wait::kYes, CU_STREAM_LEGACY, to, from, size_bytes);            \
  }                                                                                         \
  CUresult symbol##_ptds(To to, From from, size_t size_bytes) {                             \
    return copy(k_##symbol##_ptds, Wait::kYes, CU_STREAM_PER_THREAD, to, from, size_bytes); \
  }
#define BRAID_COPY_ASYNC(symbol, To, From)                                                       \
  CUresult symbol(To to, From from, size_t size_bytes, CUstream stream) {                        \
    return copy(k_##symbol, Wait::kNo, legacy(stream), to, from, size_bytes, stream);            \
  }                                                                                              \
  CUresult symbol##_ptsz(To to, From from, size_t size_bytes, CUstream stream) {                 \
    return copy(k_##symbol##_ptsz, Wait::kNo, per_thread(stream), to, from, size_bytes, stream); \
  }

BRAID_COPY(cuMemcpyHtoD_v2, CUdeviceptr, const void*)
BRAID_COPY(cuMemcpyDtoH_v2, void*, CUdeviceptr)
BRAID_COPY(cuMemcpy, CUdeviceptr, CUdeviceptr)
BRAID_COPY_ASYNC(cuMemcpyHtoDAsync_v2, CUdeviceptr, const void*)
BRAID_COPY_ASYNC(cuMemcpyDtoHAsync_v2, void*, CUdeviceptr)
BRAID_COPY_ASYNC(cuMemcpyAsync, CUdeviceptr, CUdeviceptr)
