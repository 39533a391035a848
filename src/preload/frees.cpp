// cuMemFreeAsync: the driver takes memory out of every later call's reach at once, while copies
// before it in the stream's order still use it. Copy engines that braid has yet to feed with slices
// of it come first.
#include "preload/entries.h"
#include "preload/runtime.h"

namespace braid::preload {
namespace {

CUresult free_async(HookId hook, CUdeviceptr address, CUstream stream) {
  auto* native = real<CUresult(CUdeviceptr, CUstream)>(hook);
  if (native == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  if (!Inside::now() && engine() != nullptr) engine()->settle(address);
  return native(address, stream);
}

}  // namespace
}  // namespace braid::preload

using namespace braid::preload;

CUresult cuMemFreeAsync(CUdeviceptr address, CUstream stream) {
  return free_async(k_cuMemFreeAsync, address, stream);
}
CUresult cuMemFreeAsync_ptsz(CUdeviceptr address, CUstream stream) {
  return free_async(k_cuMemFreeAsync_ptsz, address, stream);
}
