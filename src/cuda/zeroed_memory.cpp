#include "cuda/zeroed_memory.h"

#include "cuda/bounded_wait.h"

namespace braid::cuda {
namespace {

CUresult clear(const Driver& driver, CUdeviceptr memory, size_t size_bytes) {
  CUstream stream = nullptr;
  CUresult result = driver.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING);
  if (result != CUDA_SUCCESS) return result;
  result = driver.cuMemsetD8Async(memory, 0, size_bytes, stream);
  if (result == CUDA_SUCCESS)
    result = wait_until_idle(driver, stream, std::chrono::steady_clock::now() + kHeldAfter);
  driver.cuStreamDestroy(stream);
  return result;
}

}  // namespace

Result<CUdeviceptr> allocate_zeroed(const Driver& driver, size_t size_bytes,
                                    const std::string& what) {
  CUdeviceptr memory = 0;
  Status status = driver.check(driver.cuMemAlloc(&memory, size_bytes), "allocating " + what);
  if (!status.ok()) return status;
  const CUresult cleared = clear(driver, memory, size_bytes);
  if (cleared == CUDA_SUCCESS) return memory;
  // To free it would wait for the GPU, which is held.
  if (cleared != CUDA_ERROR_NOT_READY) driver.cuMemFree(memory);
  return driver.check(cleared, "clearing " + what);
}

}  // namespace braid::cuda
