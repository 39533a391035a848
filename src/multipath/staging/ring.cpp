#include "multipath/staging/ring.h"

#include <sys/mman.h>

#include "base/try.h"
#include "cuda/queries.h"
#include "cuda/scoped_context.h"

namespace braid::multipath::staging {
namespace {

constexpr uint64_t kRingBytes = kSlots * kSlotBytes;

}  // namespace

Status Ring::open() {
  void* memory =
      mmap(nullptr, kRingBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return Status::error("no memory for staging pageable copies");
  memory_ = static_cast<uint8_t*>(memory);
  madvise(memory_, kRingBytes, MADV_HUGEPAGE);  // fewer pages to pin; without them it works too
  // GPUs use these pages, which must stay the parent's after a fork. No child looks at them.
  madvise(memory_, kRingBytes, MADV_DONTFORK);
  const Status status = pin();
  is_broken_ = !status.ok();
  if (is_broken_) release();
  return status;
}

Status Ring::pin() {
  cuda::ScopedContext scope(driver_);
  BRAID_TRY(driver_.check(scope.enter(context_), "staging pageable copies"));
  BRAID_TRY(
      driver_.check(driver_.cuMemHostRegister(memory_, kRingBytes, CU_MEMHOSTREGISTER_PORTABLE),
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
  const bool is_ours = !is_pinned_ || driver_.cuMemHostUnregister(memory_) == CUDA_SUCCESS;
  let_go();
  if (is_ours) munmap(memory_, kRingBytes);
}

// To unregister the memory might wait for a stream that the program holds. The driver takes these
// addresses for pinned memory until the context has ended, so nobody else may get them.
void Ring::leave_to_context() {
  abandon();
  mmap(memory_, kRingBytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1,
       0);
}

bool Ring::fence(int index, CUstream stream) {
  const auto slot = static_cast<size_t>(index % kSlots);
  in_flight_[slot] = driver_.cuEventRecord(fences_[slot], stream) == CUDA_SUCCESS;
  is_broken_ = is_broken_ || !in_flight_[slot];
  return in_flight_[slot];
}

void Ring::mend() {
  in_flight_.fill(false);
  is_broken_ = false;
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
