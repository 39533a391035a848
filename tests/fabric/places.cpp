#include "fabric/places.h"

#include "fabric/gpu_memory.h"
#include "fabric/host_bytes.h"
#include "fabric/shared_bytes.h"

namespace braid::fabric::test {
namespace {

int gpu_count() {
  int count = 0;
  const cuda::Driver& driver = braid::test::server_driver().value();
  return driver.cuDeviceGetCount(&count) == CUDA_SUCCESS ? count : 0;
}

Gpu open_gpu(int number) {
  const cuda::Driver& driver = braid::test::server_driver().value();
  CUdevice device = 0;
  CUcontext context = nullptr;
  MUST(driver, cuDeviceGet(&device, number));
  MUST(driver, cuDevicePrimaryCtxRetain(&context, device));
  return {driver, number, context};
}

/// Opened once, for the life of the process.
const Gpu& gpu_of(int side) {
  static const Gpu gpu = open_gpu(side % gpu_count());
  return gpu;
}

}  // namespace

std::string why_no_gpu() {
  const auto& driver = braid::test::server_driver();
  if (!driver.ok()) return driver.status().message();
  return gpu_count() > 0 ? "" : "the driver shows no GPU";
}

std::unique_ptr<Memory> memory_at(Place place, int side, size_t size_bytes) {
  switch (place) {
    case Place::kMapped: return std::make_unique<SharedHostBytes>(size_bytes);
    case Place::kPlain: return std::make_unique<GpuBytes>(gpu_of(side), size_bytes);
    case Place::kShared: return std::make_unique<SharedBytes>(gpu_of(side), size_bytes);
    default: return std::make_unique<HostBytes>(size_bytes);
  }
}

}  // namespace braid::fabric::test
