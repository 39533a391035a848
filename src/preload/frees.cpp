// cuMemFreeAsync: the driver takes memory out of every later call's reach at once, while copies
// before it in the stream's order still use it. Where copy engines have yet to be given slices of
// it, braid frees it later.
#include "preload/entries.h"
#include "preload/intercept.h"
#include "preload/runtime.h"

namespace braid::preload {
namespace {

// `order`: the stream as the engine is told; the native call has its own.
CUresult free_async(HookId hook, CUdeviceptr address, CUstream order, CUstream stream) {
  auto* native = real<CUresult(CUdeviceptr, CUstream)>(hook);
  if (native == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  if (multipath::Engine* open = engine(); open != nullptr && !Inside::now()) {
    const Inside inside;
    if (const auto answer = open->free_later(address, order)) return *answer;
  }
  return native(address, stream);
}

}  // namespace
}  // namespace braid::preload

using namespace braid::preload;

CUresult cuMemFreeAsync(CUdeviceptr address, CUstream stream) {
  return free_async(k_cuMemFreeAsync, address, legacy(stream), stream);
}
CUresult cuMemFreeAsync_ptsz(CUdeviceptr address, CUstream stream) {
  return free_async(k_cuMemFreeAsync_ptsz, address, per_thread(stream), stream);
}
