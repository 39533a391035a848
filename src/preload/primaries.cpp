#include "preload/primaries.h"

#include <map>
#include <mutex>
#include <set>

#include "preload/devices.h"
#include "preload/entries.h"
#include "preload/lifecycle.h"
#include "preload/runtime.h"

namespace braid::preload {
namespace {

struct Held {
  int count = 0;
  CUcontext context = nullptr;  // as the program was told last
};

// Never destroyed: threads of the program may still be here while the process exits.
struct Primaries {
  std::mutex endings;             // held while one may end, or must not; before the other one
  std::mutex lock;                // guards what is below
  std::map<CUdevice, Held> held;  // by the program
  std::set<CUdevice> strangers;   // active before braid, by a way that braid has not seen

  int holds_of(CUdevice device) const {
    const auto found = held.find(device);
    return found != held.end() ? found->second.count : 0;
  }
  /// If the context is active, it is so for braid alone.
  bool is_unheld(CUdevice device) const {
    return holds_of(device) == 0 && !strangers.contains(device);
  }
};

Primaries& primaries() {
  static Primaries& instance = *new Primaries;  // owner: the process, until its end
  return instance;
}

bool is_active(CUdevice device) {
  unsigned flags = 0;
  int active = 0;
  return driver()->cuDevicePrimaryCtxGetState(device, &flags, &active) == CUDA_SUCCESS &&
         active != 0;
}

// The primary context of a device; null while it has none, or when nobody says.
CUcontext primary_context(const Primaries& all, CUdevice device) {
  if (const auto found = all.held.find(device); found != all.held.end())
    return found->second.context;
  CUcontext context = nullptr;
  if (!is_active(device) || driver()->cuDevicePrimaryCtxRetain(&context, device) != CUDA_SUCCESS)
    return nullptr;
  driver()->cuDevicePrimaryCtxRelease(device);
  return context;
}

void forget_primary(const Primaries& all, CUdevice device, Ending ending) {
  if (engine() == nullptr) return;
  if (CUcontext context = primary_context(all, device)) forget_context(context, ending);
}

// The driver's own business: calls from inside braid, and of a process that braid is not part of.
bool is_for_driver() { return Inside::now() || driver() == nullptr || state() == State::kForked; }

using OnDevice = CUresult(CUdevice);

CUresult retain(CUcontext* context, CUdevice device) try {
  auto* native = real<CUresult(CUcontext*, CUdevice)>(k_cuDevicePrimaryCtxRetain);
  if (native == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  if (is_for_driver()) return native(context, device);
  const Inside inside;
  Primaries& all = primaries();
  CUresult result = CUDA_SUCCESS;
  {
    const std::lock_guard hold(all.lock);
    Held& held = all.held[device];  // first: afterwards nothing may fail
    result = native(context, device);
    if (result == CUDA_SUCCESS) held = {held.count + 1, *context};
    if (held.count == 0) all.held.erase(device);
  }
  if (result == CUDA_SUCCESS) primary_context_made();
  return result;
} catch (...) {
  return CUDA_ERROR_OUT_OF_MEMORY;
}

// A call of the program's that gives a primary context up: `work(all, native)` answers it, and
// nobody adopts a context meanwhile.
template <typename Work>
CUresult give_up(HookId hook, CUdevice device, Work work) {
  auto* native = real<OnDevice>(hook);
  if (native == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  if (is_for_driver()) return native(device);
  const Inside inside;
  Primaries& all = primaries();
  const std::lock_guard alone(all.endings);
  const std::lock_guard hold(all.lock);
  return work(all, native);
}

CUresult release(HookId hook, CUdevice device) {
  return give_up(hook, device, [device](Primaries& all, OnDevice* native) {
    // The hold is braid's, not the program's to release.
    if (engine() != nullptr && all.is_unheld(device) && is_active(device))
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
  return give_up(hook, device, [device](Primaries& all, OnDevice* native) {
    // Of the program's holds the driver keeps count: a reset does not release them (cuda.h).
    forget_primary(all, device, Ending::kDestroyed);
    return native(device);
  });
}

CUresult get_state(CUdevice device, unsigned* flags, int* active) {
  auto* native = real<CUresult(CUdevice, unsigned*, int*)>(k_cuDevicePrimaryCtxGetState);
  if (native == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  const CUresult result = native(device, flags, active);
  if (result != CUDA_SUCCESS || is_for_driver()) return result;
  if (state() != State::kPreparing && state() != State::kOpen) return result;  // braid holds none
  Primaries& all = primaries();
  const std::lock_guard hold(all.lock);
  if (all.is_unheld(device)) *active = 0;
  return result;
}

}  // namespace

std::unique_lock<std::mutex> hold_primaries() { return std::unique_lock(primaries().endings); }

void note_primaries() noexcept try {
  Primaries& all = primaries();
  const std::lock_guard hold(all.lock);
  int count = 0;
  if (driver()->cuDeviceGetCount(&count) != CUDA_SUCCESS) return;
  for (int ordinal = 0; ordinal < count; ++ordinal) {
    CUdevice device = 0;
    if (driver()->cuDeviceGet(&device, ordinal) == CUDA_SUCCESS && all.holds_of(device) == 0 &&
        is_active(device))
      all.strangers.insert(device);
  }
} catch (...) {
}

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
