#include "cuda/cleared_memory.h"

#include "cuda/bounded_wait.h"

namespace braid::cuda {

Result<CUdeviceptr> allocate_cleared(const Driver& driver, size_t size_bytes,
                                     const std::string& what) {
  CUdeviceptr memory = 0;
  Status status = driver.check(driver.cuMemAlloc(&memory, size_bytes), "allocating " + what);
  if (!status.ok()) return status;
  CUstream stream = nullptr;
  status = driver.check(driver.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), "clearing " + what);
  if (status.ok())
    status =
        driver.check(driver.cuMemsetD8Async(memory, 0, size_bytes, stream), "clearing " + what);
  CUresult cleared = CUDA_SUCCESS;
  if (status.ok())
    cleared = wait_until(driver, stream, std::chrono::steady_clock::now() + kStartLimit);
  // Freeing it would wait for who holds the GPU: it goes with its context.
  if (cleared == CUDA_ERROR_NOT_READY)
    return Status::error("clearing " + what + ": the GPU is held by a kernel");
  if (status.ok()) status = driver.check(cleared, "clearing " + what);
  if (stream != nullptr) driver.cuStreamDestroy(stream);
  if (status.ok()) return memory;
  driver.cuMemFree(memory);
  return status;
}

}  // namespace braid::cuda
