// The entry points of primary contexts.
#include <mutex>

#include "cuda/queries.h"
#include "preload/binding.h"
#include "preload/contexts.h"
#include "preload/devices.h"
#include "preload/entries.h"
#include "preload/primaries.h"
#include "preload/state.h"

namespace braid::preload {
namespace {

void forget_primary(const Primaries& all, CUdevice device, Ending ending) {
  if (engine() == nullptr) return;
  if (CUcontext context = primary_context(all, device)) forget_context(context, ending);
}

using OnDevice = CUresult(CUdevice);

CUresult retain(CUcontext* context, CUdevice device) try {
  if (is_for_driver()) return forward(k_cuDevicePrimaryCtxRetain, context, device);
  const ReentryGuard guard;
  Primaries& all = primaries();
  CUresult result = CUDA_SUCCESS;
  {
    const std::lock_guard hold(all.lock);
    Primaries::Held& held = all.held[device];  // first: afterwards nothing may fail
    result = forward(k_cuDevicePrimaryCtxRetain, context, device);
    if (result == CUDA_SUCCESS) held = {held.count + 1, *context};
    if (held.count == 0) all.held.erase(device);
  }
  if (result == CUDA_SUCCESS) create_engine();
  return result;
} catch (...) {
  return CUDA_ERROR_OUT_OF_MEMORY;
}

// A call of the program's that gives a primary context up: `work(all, native)` answers it, and
// nobody adopts a context meanwhile.
template <typename Work>
CUresult give_up_primary(HookId hook, CUdevice device, Work work) {
  auto* native = real<OnDevice>(hook);
  if (native == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  if (is_for_driver()) return native(device);
  const ReentryGuard guard;
  Primaries& all = primaries();
  const std::lock_guard alone(all.endings);
  const std::lock_guard hold(all.lock);
  return work(all, native);
}

CUresult release(HookId hook, CUdevice device) {
  return give_up_primary(hook, device, [device](Primaries& all, OnDevice* native) {
    // The hold is braid's, not the program's to release.
    if (engine() != nullptr && all.is_unheld(device) &&
        cuda::has_primary_context(*driver(), device))
      return CUDA_ERROR_INVALID_CONTEXT;
    const auto held = all.held.find(device);
    if (held == all.held.end()) return native(device);
    if (held->second.count == 1) forget_primary(all, device, Ending::kReleased);
    const CUresult result = native(device);
    const bool is_over = result == CUDA_ERROR_INVALID_CONTEXT;  // a reset has ended the holds
    if (is_over || (result == CUDA_SUCCESS && --held->second.count == 0)) all.held.erase(held);
    return result;
  });
}

CUresult reset(HookId hook, CUdevice device) {
  return give_up_primary(hook, device, [device](Primaries& all, OnDevice* native) {
    // Of the program's holds the driver keeps count: a reset does not release them (cuda.h).
    forget_primary(all, device, Ending::kDestroyed);
    return native(device);
  });
}

CUresult get_state(CUdevice device, unsigned* flags, int* active) {
  const CUresult result = forward(k_cuDevicePrimaryCtxGetState, device, flags, active);
  if (result != CUDA_SUCCESS || is_for_driver()) return result;
  if (state() != State::kCreating && state() != State::kOpen) return result;  // braid holds none
  Primaries& all = primaries();
  const std::lock_guard hold(all.lock);
  if (all.is_unheld(device)) *active = 0;
  return result;
}

}  // namespace
}  // namespace braid::preload

using namespace braid::preload;

CUresult cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice device) {
  return retain(context, to_make_context_on(device));
}

CUresult cuDevicePrimaryCtxRelease(CUdevice device) {
  return release(k_cuDevicePrimaryCtxRelease, as_program_sees(device));
}

CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device) {
  return release(k_cuDevicePrimaryCtxRelease_v2, as_program_sees(device));
}

CUresult cuDevicePrimaryCtxReset(CUdevice device) {
  return reset(k_cuDevicePrimaryCtxReset, as_program_sees(device));
}

CUresult cuDevicePrimaryCtxReset_v2(CUdevice device) {
  return reset(k_cuDevicePrimaryCtxReset_v2, as_program_sees(device));
}

CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned* flags, int* active) {
  return get_state(as_program_sees(device), flags, active);
}
