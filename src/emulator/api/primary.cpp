// Primary contexts: one a device, retained and released by count.
#include <thread>

#include "emulator/api/context.h"
#include "emulator/api/device.h"

namespace braid::emulator {
namespace {

// Meanwhile other threads' calls go on.
void take_time(Call& call) {
  const auto duration = call.world.faults.contexts_take();
  if (duration.count() == 0) return;
  call.lock.unlock();
  std::this_thread::sleep_for(duration);
  call.lock.lock();
}

CUresult retain(Call& call, CUcontext* out, CUdevice device) {
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  BRAID_TRY(check_device(call, device));
  const ContextPtr& primary = call.world.primaries[device];
  if (!primary->alive) take_time(call);
  if (!primary->alive) BRAID_TRY(revive(call, *primary, primary->flags));
  ++primary->primary_retains;
  *out = primary->handle;
  return CUDA_SUCCESS;
}

CUresult release(Call& call, CUdevice device) {
  BRAID_TRY(check_device(call, device));
  const ContextPtr primary = call.world.primaries[device];
  if (primary->primary_retains == 0) return CUDA_ERROR_INVALID_CONTEXT;
  if (--primary->primary_retains == 0 && primary->alive) destroy(call, primary);
  return CUDA_SUCCESS;
}

// Destroys the context whoever holds it, as CUDA does. They still hold the next one, which comes
// with the next retaining, until they release it (cuda.h).
CUresult reset(Call& call, CUdevice device) {
  BRAID_TRY(check_device(call, device));
  const ContextPtr primary = call.world.primaries[device];
  if (!primary->alive) return CUDA_SUCCESS;
  destroy(call, primary);
  return CUDA_SUCCESS;
}

CUresult get_state(Call& call, CUdevice device, unsigned* flags, int* active) {
  if (flags == nullptr || active == nullptr) return CUDA_ERROR_INVALID_VALUE;
  BRAID_TRY(check_device(call, device));
  *flags = call.world.primaries[device]->flags;
  *active = call.world.primaries[device]->alive ? 1 : 0;
  return CUDA_SUCCESS;
}

CUresult set_flags(Call& call, CUdevice device, unsigned flags) {
  if (!known_context_flags(flags)) return CUDA_ERROR_INVALID_VALUE;
  BRAID_TRY(check_device(call, device));
  call.world.primaries[device]->flags = flags;
  return CUDA_SUCCESS;
}

}  // namespace

BRAID_ENTRY(cuDevicePrimaryCtxRetain, 2, retain)
BRAID_ENTRY_V2(cuDevicePrimaryCtxRelease, 1, release)
BRAID_ENTRY_V2(cuDevicePrimaryCtxReset, 1, reset)
BRAID_ENTRY(cuDevicePrimaryCtxGetState, 3, get_state)
BRAID_ENTRY_V2(cuDevicePrimaryCtxSetFlags, 2, set_flags)

}  // namespace braid::emulator
