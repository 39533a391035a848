// The linear copies.
#include "preload/entries.h"
#include "preload/intercept.h"

namespace braid::preload {
namespace {

using multipath::Direction;

CUdeviceptr address(const void* pointer) { return reinterpret_cast<CUdeviceptr>(pointer); }

// `stream`: as the engine is told; the native call has its own among the arguments.
template <typename... Arguments>
CUresult copy_up(HookId hook, Wait wait, CUstream stream, CUdeviceptr to, const void* from,
                 size_t size_bytes, Arguments... rest) {
  constexpr Direction direction = Direction::kHostToDevice;
  Interception call(hook, wait, size_bytes);
  if (call.may_gain(least_bytes()))
    call.offer({direction, segment_of(direction, to, address(from), size_bytes), stream});
  return call.finish(to, from, size_bytes, rest...);
}

template <typename... Arguments>
CUresult copy_down(HookId hook, Wait wait, CUstream stream, void* to, CUdeviceptr from,
                   size_t size_bytes, Arguments... rest) {
  constexpr Direction direction = Direction::kDeviceToHost;
  Interception call(hook, wait, size_bytes);
  if (call.may_gain(least_bytes()))
    call.offer({direction, segment_of(direction, address(to), from, size_bytes), stream});
  return call.finish(to, from, size_bytes, rest...);
}

template <typename... Arguments>
CUresult copy_any(HookId hook, Wait wait, CUstream stream, CUdeviceptr to, CUdeviceptr from,
                  size_t size_bytes, Arguments... rest) {
  Interception call(hook, wait, size_bytes);
  if (call.may_gain(least_bytes()))
    if (const auto direction = call.find_direction(to, from))
      call.offer({*direction, segment_of(*direction, to, from, size_bytes), stream});
  return call.finish(to, from, size_bytes, rest...);
}

}  // namespace
}  // namespace braid::preload

using namespace braid::preload;

CUresult cuMemcpyHtoD_v2(CUdeviceptr to, const void* from, size_t size_bytes) {
  return copy_up(k_cuMemcpyHtoD_v2, Wait::kYes, CU_STREAM_LEGACY, to, from, size_bytes);
}

CUresult cuMemcpyHtoD_v2_ptds(CUdeviceptr to, const void* from, size_t size_bytes) {
  return copy_up(k_cuMemcpyHtoD_v2_ptds, Wait::kYes, CU_STREAM_PER_THREAD, to, from, size_bytes);
}

CUresult cuMemcpyDtoH_v2(void* to, CUdeviceptr from, size_t size_bytes) {
  return copy_down(k_cuMemcpyDtoH_v2, Wait::kYes, CU_STREAM_LEGACY, to, from, size_bytes);
}

CUresult cuMemcpyDtoH_v2_ptds(void* to, CUdeviceptr from, size_t size_bytes) {
  return copy_down(k_cuMemcpyDtoH_v2_ptds, Wait::kYes, CU_STREAM_PER_THREAD, to, from, size_bytes);
}

CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void* from, size_t size_bytes,
                              CUstream stream) {
  return copy_up(k_cuMemcpyHtoDAsync_v2, Wait::kNo, legacy(stream), to, from, size_bytes, stream);
}

CUresult cuMemcpyHtoDAsync_v2_ptsz(CUdeviceptr to, const void* from, size_t size_bytes,
                                   CUstream stream) {
  return copy_up(k_cuMemcpyHtoDAsync_v2_ptsz, Wait::kNo, per_thread(stream), to, from, size_bytes,
                 stream);
}

CUresult cuMemcpyDtoHAsync_v2(void* to, CUdeviceptr from, size_t size_bytes, CUstream stream) {
  return copy_down(k_cuMemcpyDtoHAsync_v2, Wait::kNo, legacy(stream), to, from, size_bytes, stream);
}

CUresult cuMemcpyDtoHAsync_v2_ptsz(void* to, CUdeviceptr from, size_t size_bytes, CUstream stream) {
  return copy_down(k_cuMemcpyDtoHAsync_v2_ptsz, Wait::kNo, per_thread(stream), to, from, size_bytes,
                   stream);
}

CUresult cuMemcpy(CUdeviceptr to, CUdeviceptr from, size_t size_bytes) {
  return copy_any(k_cuMemcpy, Wait::kYes, CU_STREAM_LEGACY, to, from, size_bytes);
}

CUresult cuMemcpy_ptds(CUdeviceptr to, CUdeviceptr from, size_t size_bytes) {
  return copy_any(k_cuMemcpy_ptds, Wait::kYes, CU_STREAM_PER_THREAD, to, from, size_bytes);
}

CUresult cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, size_t size_bytes, CUstream stream) {
  return copy_any(k_cuMemcpyAsync, Wait::kNo, legacy(stream), to, from, size_bytes, stream);
}

CUresult cuMemcpyAsync_ptsz(CUdeviceptr to, CUdeviceptr from, size_t size_bytes, CUstream stream) {
  return copy_any(k_cuMemcpyAsync_ptsz, Wait::kNo, per_thread(stream), to, from, size_bytes,
                  stream);
}
