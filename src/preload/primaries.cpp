#include "preload/primaries.h"

#include "cuda/queries.h"
#include "preload/state.h"

namespace braid::preload {

Primaries& primaries() {
  static Primaries& instance = *new Primaries;  // owner: the process, until its end
  return instance;
}

CUcontext primary_context(const Primaries& all, CUdevice device) {
  if (const auto found = all.held.find(device); found != all.held.end())
    return found->second.context;
  CUcontext context = nullptr;
  if (!cuda::has_primary_context(*driver(), device) ||
      driver()->cuDevicePrimaryCtxRetain(&context, device) != CUDA_SUCCESS)
    return nullptr;
  driver()->cuDevicePrimaryCtxRelease_v2(device);
  return context;
}

std::unique_lock<std::mutex> hold_primaries() { return std::unique_lock(primaries().endings); }

void note_primaries() noexcept try {
  Primaries& all = primaries();
  const std::lock_guard hold(all.lock);
  int count = 0;
  if (driver()->cuDeviceGetCount(&count) != CUDA_SUCCESS) return;
  for (int ordinal = 0; ordinal < count; ++ordinal) {
    CUdevice device = 0;
    if (driver()->cuDeviceGet(&device, ordinal) == CUDA_SUCCESS && all.holds_of(device) == 0 &&
        cuda::has_primary_context(*driver(), device))
      all.strangers.insert(device);
  }
} catch (...) {
}

}  // namespace braid::preload
