#include "multipath/late_frees.h"

#include <algorithm>

#include "cuda/relaxed_capture.h"
#include "cuda/scoped_context.h"

namespace braid::multipath {

LateFrees::~LateFrees() {
  const cuda::RelaxedCapture relaxed(driver_);
  for (const Entry& entry : entries_) free_now(entry, true);
}

bool LateFrees::add(CUdeviceptr address, CUcontext context, CUstream stream) {
  const cuda::RelaxedCapture relaxed(driver_);
  // The stream's own context: an event belongs to one, and is recorded there.
  CUcontext of_stream = nullptr;
  if (driver_.cuStreamGetCtx(stream, &of_stream) != CUDA_SUCCESS) return false;
  const cuda::ScopedContext scope(driver_, of_stream);
  CUevent passed = nullptr;
  if (scope.status() != CUDA_SUCCESS ||
      driver_.cuEventCreate(&passed, CU_EVENT_DISABLE_TIMING) != CUDA_SUCCESS)
    return false;
  if (driver_.cuEventRecord(passed, stream) != CUDA_SUCCESS) {
    driver_.cuEventDestroy(passed);
    return false;
  }
  const std::lock_guard lock(mutex_);
  entries_.push_back({address, context, of_stream, passed});
  count_.store(entries_.size(), std::memory_order_relaxed);
  return true;
}

bool LateFrees::holds(CUdeviceptr address) {
  if (count_.load(std::memory_order_relaxed) == 0) return false;
  const std::lock_guard lock(mutex_);
  return std::any_of(entries_.begin(), entries_.end(),
                     [address](const Entry& entry) { return entry.address == address; });
}

void LateFrees::release_passed() noexcept {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock) return;
  const cuda::RelaxedCapture relaxed(driver_);
  std::erase_if(entries_, [this](const Entry& entry) {
    const bool has_passed =
        entry.passed == nullptr || driver_.cuEventQuery(entry.passed) != CUDA_ERROR_NOT_READY;
    return has_passed && free_now(entry, false);
  });
  count_.store(entries_.size(), std::memory_order_relaxed);
}

// In a stream of braid's own: the program's may be gone, and cuMemFree would wait for all the rest
// of the context. False when that cannot be had now.
bool LateFrees::free_now(const Entry& entry, bool waits) const {
  const cuda::ScopedContext scope(driver_, entry.context);
  CUstream stream = nullptr;
  if (scope.status() != CUDA_SUCCESS ||
      driver_.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING) != CUDA_SUCCESS)
    return false;
  if (waits && entry.passed != nullptr) driver_.cuStreamWaitEvent(stream, entry.passed, 0);
  driver_.cuMemFreeAsync(entry.address, stream);
  if (entry.passed != nullptr) driver_.cuEventDestroy(entry.passed);
  driver_.cuStreamDestroy(stream);
  return true;
}

void LateFrees::forget_context(CUcontext context) {
  const std::lock_guard lock(mutex_);
  std::erase_if(entries_, [&](const Entry& entry) { return entry.context == context; });
  for (Entry& entry : entries_)
    if (entry.of_stream == context) entry.passed = nullptr;
  count_.store(entries_.size(), std::memory_order_relaxed);
}

}  // namespace braid::multipath
