#include "multipath/access.h"

#include <array>

#include "cuda/relaxed_capture.h"
#include "multipath/pointer_facts.h"

namespace braid::multipath {
namespace {

CUmemLocation location_of(int gpu) {
  CUmemLocation location{};
  location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  location.id = gpu;
  return location;
}

// What one GPU may do; nothing when the driver does not say.
CUmemAccess_flags access_of(const cuda::Driver& driver, CUmemoryPool pool, CUdeviceptr address,
                            int gpu) {
  CUmemLocation location = location_of(gpu);
  CUmemAccess_flags pooled = CU_MEM_ACCESS_FLAGS_PROT_NONE;
  unsigned long long mapped = CU_MEM_ACCESS_FLAGS_PROT_NONE;
  const CUresult asked = pool != nullptr ? driver.cuMemPoolGetAccess(&pooled, pool, &location)
                                         : driver.cuMemGetAccess(&mapped, &location, address);
  if (asked != CUDA_SUCCESS) return CU_MEM_ACCESS_FLAGS_PROT_NONE;
  return pool != nullptr ? pooled : static_cast<CUmemAccess_flags>(mapped);
}

// One entry for each GPU, as the driver's two functions take them.
class AccessDescs {
 public:
  explicit AccessDescs(GpuSet gpus) {
    for (int gpu = 0; gpu < kMostGpus; ++gpu)
      if ((gpus & gpu_bit(gpu)) != 0)
        descs_[count_++] = {location_of(gpu), CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  }
  const CUmemAccessDesc* data() const { return descs_.data(); }
  size_t size() const { return count_; }

 private:
  std::array<CUmemAccessDesc, kMostGpus> descs_{};
  size_t count_ = 0;
};

}  // namespace

GpuSet gpus_with_access(const cuda::Driver& driver, CUmemoryPool pool, CUdeviceptr address,
                        Direction direction, GpuSet gpus) {
  const cuda::RelaxedCapture relaxed(driver);  // else the driver spoils this thread's own capture
  GpuSet allowed = 0;
  for (int gpu = 0; gpu < kMostGpus; ++gpu) {
    if ((gpus & gpu_bit(gpu)) == 0) continue;
    const CUmemAccess_flags access = access_of(driver, pool, address, gpu);
    if (access == CU_MEM_ACCESS_FLAGS_PROT_READWRITE ||
        (access == CU_MEM_ACCESS_FLAGS_PROT_READ && direction == Direction::kDeviceToHost))
      allowed |= gpu_bit(gpu);
  }
  return allowed;
}

bool grant_access(const cuda::Driver& driver, CUmemoryPool pool, GpuSet gpus) {
  const AccessDescs descs(gpus);
  return driver.cuMemPoolSetAccess(pool, descs.data(), descs.size()) == CUDA_SUCCESS;
}

bool grant_access(const cuda::Driver& driver, CUdeviceptr address, size_t size_bytes, GpuSet gpus) {
  const AccessDescs descs(gpus);
  return driver.cuMemSetAccess(address, size_bytes, descs.data(), descs.size()) == CUDA_SUCCESS;
}

int gpu_of_mappings(const cuda::Driver& driver, CUdeviceptr address, size_t size_bytes) {
  const CUdeviceptr end = address + size_bytes;
  int gpu = -1;
  while (address < end) {
    const DeviceFacts facts = pointer_facts(driver, address).device;
    if (facts.kind != DeviceFacts::Kind::kMapped) return -1;
    if (gpu >= 0 && facts.gpu != gpu) return -1;
    gpu = facts.gpu;
    address = facts.extent.end();
  }
  return gpu;
}

}  // namespace braid::multipath
