#include "cuda/shared_memory.h"

#include <vector>

#include "base/try.h"
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

Result<std::unique_ptr<SharedMemory>> SharedMemory::open(const Driver& driver, int gpu,
                                                         std::span<const int> others,
                                                         size_t size_bytes,
                                                         const std::string& what) {
  std::unique_ptr<SharedMemory> memory(new SharedMemory(driver));
  CUresult result = memory->allocate(gpu, others, size_bytes);
  if (result == CUDA_SUCCESS) {
    result = clear(driver, memory->address_, memory->size_bytes_);
    if (result != CUDA_SUCCESS) memory->abandon();  // it may yet be written
  }
  BRAID_TRY(driver.check(result, "allocating " + what + " on GPU " + std::to_string(gpu)));
  return memory;
}

CUresult SharedMemory::allocate(int gpu, std::span<const int> others, size_t size_bytes) {
  CUmemAllocationProp wanted{};
  wanted.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  wanted.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  wanted.location.id = gpu;
  size_t grain = 0;
  CUresult result =
      driver_.cuMemGetAllocationGranularity(&grain, &wanted, CU_MEM_ALLOC_GRANULARITY_MINIMUM);
  if (result != CUDA_SUCCESS) return result;
  size_bytes_ = (size_bytes + grain - 1) / grain * grain;
  result = driver_.cuMemCreate(&handle_, size_bytes_, &wanted, 0);
  if (result != CUDA_SUCCESS) handle_ = 0;
  if (result == CUDA_SUCCESS) result = driver_.cuMemAddressReserve(&address_, size_bytes_, 0, 0, 0);
  if (result == CUDA_SUCCESS) result = driver_.cuMemMap(address_, size_bytes_, 0, handle_, 0);
  is_mapped_ = result == CUDA_SUCCESS;
  std::vector<CUmemAccessDesc> access;
  const auto add = [&](int ordinal) {
    CUmemAccessDesc one{};
    one.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    one.location.id = ordinal;
    one.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    access.push_back(one);
  };
  add(gpu);
  for (const int other : others) add(other);
  if (result == CUDA_SUCCESS)
    result = driver_.cuMemSetAccess(address_, size_bytes_, access.data(), access.size());
  return result;
}

SharedMemory::~SharedMemory() {
  if (abandoned_) return;
  if (is_mapped_) driver_.cuMemUnmap(address_, size_bytes_);
  if (address_ != 0) driver_.cuMemAddressFree(address_, size_bytes_);
  if (handle_ != 0) driver_.cuMemRelease(handle_);
}

}  // namespace braid::cuda
