#include "multipath/staging/ring.h"

#include <utility>

#include "base/try.h"
#include "cuda/queries.h"
#include "cuda/scoped_context.h"

namespace braid::multipath::staging {
namespace {

constexpr uint64_t kRingBytes = kSlots * kSlotBytes;

}  // namespace

Status Ring::open() {
  auto memory = HugePages::map(kRingBytes);
  if (!memory.ok()) return Status::error("no memory for staging pageable copies");
  memory_ = std::move(memory).value();
  const Status status = pin();
  is_broken_ = !status.ok();
  if (is_broken_) release();
  return status;
}

Status Ring::pin() {
  cuda::ScopedContext scope(driver_);
  BRAID_TRY(driver_.check(scope.enter(context_), "staging pageable copies"));
  BRAID_TRY(driver_.check(
      driver_.cuMemHostRegister(memory_.bytes().data(), kRingBytes, CU_MEMHOSTREGISTER_PORTABLE),
      "pinning memory for staging pageable copies"));
  is_pinned_ = true;
  hold_primary_context();
  for (CUevent& fence : fences_)
    BRAID_TRY(driver_.check(driver_.cuEventCreate(&fence, CU_EVENT_DISABLE_TIMING),
                            "creating a fence for staging pageable copies"));
  return {};
}

// The program may give back a primary context without braid seeing it; fences and registration
// would end with it.
void Ring::hold_primary_context() {
  CUdevice device = 0;
  CUcontext primary = nullptr;
  if (driver_.cuCtxGetDevice(&device) != CUDA_SUCCESS ||
      !cuda::has_primary_context(driver_, device) ||
      driver_.cuDevicePrimaryCtxRetain(&primary, device) != CUDA_SUCCESS)
    return;
  if (primary == context_)
    held_ = device;
  else
    driver_.cuDevicePrimaryCtxRelease(device);
}

// What a stream may still use, or a failed context holds, is left; the context is let go anyhow.
Ring::~Ring() {
  if (!is_abandoned_ && !is_broken_ && is_idle()) release();
  memory_.leave_mapped();
  let_go();
}

void Ring::let_go() {
  if (held_) driver_.cuDevicePrimaryCtxRelease(*held_);
  held_.reset();
}

void Ring::release() {
  cuda::ScopedContext scope(driver_);
  scope.enter(context_);
  for (CUevent fence : fences_)
    if (fence != nullptr) driver_.cuEventDestroy(fence);
  const bool is_ours =
      !is_pinned_ || driver_.cuMemHostUnregister(memory_.bytes().data()) == CUDA_SUCCESS;
  let_go();
  if (!is_ours) memory_.leave_mapped();
  memory_ = {};
}

// To unregister the memory might wait for a stream that the program holds. The driver takes these
// addresses for pinned memory until the context has ended, so nobody else may get them.
void Ring::leave_to_context() {
  abandon();
  memory_.leave_addresses();
}

bool Ring::fence(int index, CUstream stream) {
  const auto slot = static_cast<size_t>(index % kSlots);
  in_flight_[slot] = driver_.cuEventRecord(fences_[slot], stream) == CUDA_SUCCESS;
  is_broken_ = is_broken_ || !in_flight_[slot];
  return in_flight_[slot];
}

void Ring::mend() {
  in_flight_.fill(false);
  is_broken_ = is_lost_;
}

void Ring::lose() {
  is_lost_ = true;
  is_broken_ = true;
}

bool Ring::pass(int index, CUresult result) {
  if (result == CUDA_SUCCESS)
    in_flight_[static_cast<size_t>(index % kSlots)] = false;
  else if (result != CUDA_ERROR_NOT_READY)
    is_broken_ = true;
  return result == CUDA_SUCCESS;
}

bool Ring::wait(int index) {
  const auto slot = static_cast<size_t>(index % kSlots);
  return !in_flight_[slot] || pass(index, driver_.cuEventSynchronize(fences_[slot]));
}

bool Ring::is_idle() {
  for (int index = 0; index < kSlots; ++index) {
    const auto slot = static_cast<size_t>(index);
    if (in_flight_[slot] && !pass(index, driver_.cuEventQuery(fences_[slot]))) return false;
  }
  return true;
}

}  // namespace braid::multipath::staging
