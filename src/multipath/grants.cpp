#include "multipath/grants.h"

#include "cuda/relaxed_capture.h"

namespace braid::multipath {

GpuSet grant_to_relays(const cuda::Driver& driver, ContextRegistry& registry, CUmemoryPool pool,
                       int gpu) {
  const GpuSet relays = registry.open_relays_of(gpu);
  const cuda::RelaxedCapture relaxed(driver);
  return relays != 0 && grant_access(driver, pool, relays) ? relays : 0;
}

GpuSet grant_to_relays(const cuda::Driver& driver, ContextRegistry& registry, CUdeviceptr address,
                       size_t size_bytes) {
  const int gpu = gpu_of_mappings(driver, address, size_bytes);
  if (gpu < 0 ||
      gpus_with_access(driver, nullptr, address, Direction::kHostToDevice, gpu_bit(gpu)) == 0)
    return 0;
  const GpuSet relays = registry.open_relays_of(gpu);
  const cuda::RelaxedCapture relaxed(driver);
  return relays != 0 && grant_access(driver, address, size_bytes, relays) ? relays : 0;
}

std::vector<std::pair<CUmemoryPool, GpuSet>> grant_default_pools(const cuda::Driver& driver,
                                                                 ContextRegistry& registry) {
  std::vector<std::pair<CUmemoryPool, GpuSet>> granted;
  for (int gpu = 0; gpu < registry.relays().gpu_count(); ++gpu) {
    CUmemoryPool pool = nullptr;
    if (driver.cuDeviceGetDefaultMemPool(&pool, registry.relays().device(gpu)) != CUDA_SUCCESS)
      continue;
    if (const GpuSet gpus = grant_to_relays(driver, registry, pool, gpu))
      granted.emplace_back(pool, gpus);
  }
  return granted;
}

}  // namespace braid::multipath
