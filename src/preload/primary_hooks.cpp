// The entry points of primary contexts.
#include "cuda/queries.h"
#include "preload/binding.h"
#include "preload/contexts.h"
#include "preload/devices.h"
#include "preload/entries.h"
#include "preload/primaries.h"
#include "preload/state.h"

namespace braid::preload {
namespace {

using OnDevice = CUresult(CUdevice);

CUresult retain(CUcontext* context, CUdevice device) {
  if (is_for_driver()) return forward(k_cuDevicePrimaryCtxRetain, context, device);
  const ReentryGuard guard;
  CUresult result = CUDA_SUCCESS;
  {
    PrimaryRetain hold(device);
    result = forward(k_cuDevicePrimaryCtxRetain, context, device);
    if (result == CUDA_SUCCESS) hold.succeeded(*context);
  }
  if (result == CUDA_SUCCESS) primary_made(device);
  return result;
}

void forget_primary(const PrimaryGiveUp& give_up, Ending ending) {
  if (engine() == nullptr || !give_up.ends_it()) return;
  if (CUcontext context = give_up.context()) forget_context(context, ending);
}

CUresult release(HookId hook, CUdevice device) {
  auto* native = real<OnDevice>(hook);
  if (native == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  if (is_for_driver()) return native(device);
  const ReentryGuard guard;
  PrimaryGiveUp give_up(device, GiveUp::kRelease);
  // The hold is braid's, not the program's to release.
  if (engine() != nullptr && give_up.is_unheld() && cuda::has_primary_context(*driver(), device))
    return CUDA_ERROR_INVALID_CONTEXT;
  // Code that dies with the context is left to it: to unload it might wait for another thread's
  // streams, where that retains the context meanwhile.
  forget_primary(give_up, give_up.has_strangers() ? Ending::kReleased : Ending::kDestroyed);
  const CUresult result = native(device);
  give_up.released(result);
  return result;
}

CUresult reset(HookId hook, CUdevice device) {
  auto* native = real<OnDevice>(hook);
  if (native == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  if (is_for_driver()) return native(device);
  const ReentryGuard guard;
  const PrimaryGiveUp give_up(device, GiveUp::kReset);
  forget_primary(give_up, Ending::kDestroyed);
  return native(device);
}

CUresult get_state(CUdevice device, unsigned* flags, int* active) {
  const CUresult result = forward(k_cuDevicePrimaryCtxGetState, device, flags, active);
  // Before there is an engine, braid holds none.
  if (result == CUDA_SUCCESS && !is_for_driver() && state() == State::kOpen &&
      is_primary_unheld(device))
    *active = 0;
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
