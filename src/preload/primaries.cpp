#include "preload/primaries.h"

#include <algorithm>
#include <array>
#include <condition_variable>
#include <mutex>

#include "cuda/queries.h"
#include "preload/messages.h"
#include "preload/renewed_in_child.h"
#include "preload/state.h"

namespace braid::preload {
namespace {

// Of one GPU. The counts of calls are those under way.
struct Primary {
  int holds = 0;                // the program's
  int retained = 0;             // how many it has been given so far
  CUcontext context = nullptr;  // as the program was told last
  bool has_strangers = false;   // active before braid, by a way that braid has not seen
  int retains = 0;              // calls
  int give_ups = 0;             // calls
  bool is_being_adopted = false;
  bool is_used_unadopted = false;  // the program has got the context while it could not be adopted
};

// No driver call is made under the lock.
struct Primaries {
  std::mutex lock;
  std::condition_variable adopted;
  std::array<Primary, multipath::kMostGpus> by_device;

  // Null: braid works with no such GPU.
  Primary* find(CUdevice device) {
    return device >= 0 && static_cast<size_t>(device) < by_device.size()
               ? &by_device[static_cast<size_t>(device)]
               : nullptr;
  }
};

Primaries& primaries() { return renewed_in_child<Primaries>(); }

bool is_unheld(const Primary& primary) { return primary.holds == 0 && !primary.has_strangers; }

// The primary context of a device; null while it has none, or when nobody says.
CUcontext ask_for_primary(CUdevice device) {
  CUcontext context = nullptr;
  if (!cuda::has_primary_context(*driver(), device) ||
      driver()->cuDevicePrimaryCtxRetain(&context, device) != CUDA_SUCCESS)
    return nullptr;
  driver()->cuDevicePrimaryCtxRelease(device);
  return context;
}

void adopt_without_lock(multipath::Engine& engine, CUdevice device,
                        multipath::Kernels kernels) noexcept try {
  const Status status = engine.add_primary(device, kernels);
  if (!status.ok()) say_once((status.message() + ". Copies there stay native").c_str());
} catch (...) {  // no memory for the words of what failed
}

// With the lock, which is free meanwhile.
void adopt(multipath::Engine& engine, CUdevice device, Primary& primary,
           std::unique_lock<std::mutex>& lock) noexcept {
  primary.is_being_adopted = true;
  const auto kernels =
      primary.is_used_unadopted ? multipath::Kernels::kNone : multipath::Kernels::kLoad;
  lock.unlock();
  adopt_without_lock(engine, device, kernels);
  lock.lock();
  primary.is_being_adopted = false;
  primaries().adopted.notify_all();
}

}  // namespace

PrimaryRetain::PrimaryRetain(CUdevice device) noexcept : device_(device) {
  const std::lock_guard lock(primaries().lock);
  if (Primary* primary = primaries().find(device_)) ++primary->retains;
}

PrimaryRetain::~PrimaryRetain() {
  const std::lock_guard lock(primaries().lock);
  if (Primary* primary = primaries().find(device_)) --primary->retains;
}

void PrimaryRetain::succeeded(CUcontext context) noexcept {
  const std::lock_guard lock(primaries().lock);
  Primary* primary = primaries().find(device_);
  if (primary == nullptr) return;
  ++primary->holds;
  ++primary->retained;
  primary->context = context;
}

PrimaryGiveUp::PrimaryGiveUp(CUdevice device, GiveUp how) noexcept : device_(device) {
  std::unique_lock lock(primaries().lock);
  Primary* primary = primaries().find(device_);
  if (primary == nullptr) return;
  ++primary->give_ups;
  told_ = primary->holds > 0 ? primary->context : nullptr;
  is_unheld_ = preload::is_unheld(*primary);
  has_strangers_ = primary->has_strangers;
  retained_before_ = primary->retained;
  is_counted_ = how == GiveUp::kRelease && primary->holds > 0;
  if (is_counted_) --primary->holds;
  // A reset does not release the program's holds (cuda.h).
  ends_it_ = how == GiveUp::kReset || (is_counted_ && primary->holds == 0);
  if (ends_it_) primaries().adopted.wait(lock, [&] { return !primary->is_being_adopted; });
}

PrimaryGiveUp::~PrimaryGiveUp() {
  const std::lock_guard lock(primaries().lock);
  Primary* primary = primaries().find(device_);
  if (primary == nullptr) return;
  --primary->give_ups;
  // It has ended, as far as braid can tell, and its streams with it.
  if (preload::is_unheld(*primary) && primary->retains + primary->give_ups == 0)
    primary->is_used_unadopted = false;
}

CUcontext PrimaryGiveUp::context() const {
  return told_ != nullptr ? told_ : ask_for_primary(device_);
}

void PrimaryGiveUp::released(CUresult result) noexcept {
  if (!is_counted_ || result == CUDA_SUCCESS) return;
  const std::lock_guard lock(primaries().lock);
  Primary& primary = *primaries().find(device_);
  if (result != CUDA_ERROR_INVALID_CONTEXT)
    ++primary.holds;
  else  // there were none; but other threads may have retained it meanwhile
    primary.holds = std::min(primary.holds, primary.retained - retained_before_);
}

bool is_primary_unheld(CUdevice device) noexcept {
  const std::lock_guard lock(primaries().lock);
  const Primary* primary = primaries().find(device);
  return primary != nullptr && is_unheld(*primary);
}

void note_primaries() noexcept {
  int count = 0;
  if (driver()->cuDeviceGetCount(&count) != CUDA_SUCCESS) return;
  for (int ordinal = 0; ordinal < count; ++ordinal) {
    CUdevice device = 0;
    if (driver()->cuDeviceGet(&device, ordinal) != CUDA_SUCCESS ||
        !cuda::has_primary_context(*driver(), device))
      continue;
    const std::lock_guard lock(primaries().lock);
    Primary* primary = primaries().find(device);
    if (primary != nullptr && primary->holds + primary->retains + primary->give_ups == 0)
      primary->has_strangers = true;
  }
}

bool adopt_primary(multipath::Engine& engine, CUdevice device) noexcept {
  std::unique_lock lock(primaries().lock);
  Primary* primary = primaries().find(device);
  if (primary == nullptr) return true;
  primaries().adopted.wait(lock, [&] { return !primary->is_being_adopted; });
  const bool is_ending = primary->give_ups != 0;
  if (is_ending)
    primary->is_used_unadopted = true;
  else
    adopt(engine, device, *primary, lock);
  return !is_ending;
}

void adopt_primaries(multipath::Engine& engine) noexcept {
  for (CUdevice device = 0; device < multipath::kMostGpus; ++device) {
    std::unique_lock lock(primaries().lock);
    Primary* primary = primaries().find(device);
    if (primary->retains + primary->give_ups == 0 && !primary->is_being_adopted)
      adopt(engine, device, *primary, lock);
  }
}

}  // namespace braid::preload
