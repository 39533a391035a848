// The client of `braid doctor`: a driver-API program that knows nothing of braid. It copies random
// bytes to each GPU and back, through entry points from dlsym and from cuGetProcAddress, and
// compares.
#include <dlfcn.h>
#include <fmt/core.h>

#include <cstdint>
#include <cstring>
#include <string>

#include "base/try.h"
#include "cuda/driver.h"
#include "tools/commands.h"
#include "tools/gpu_objects.h"
#include "tools/pattern.h"

namespace braid::tools {
namespace {

constexpr size_t kOffsetBytes = 7;
constexpr uint64_t kSeed = 20261121;

using HtoDFunction = CUresult(CUdeviceptr, const void*, size_t);
using DtoHFunction = CUresult(void*, CUdeviceptr, size_t);

struct Buffers {
  size_t size_bytes;  // of a copy
  char* host;         // pinned
  CUdeviceptr device;
};

// Copies a pattern to the GPU and back with the two functions given.
template <typename ToDevice, typename ToHost>
Status round_trip(const cuda::Driver& driver, const Buffers& buffers, ToDevice to_device,
                  ToHost to_host) {
  char* const host = buffers.host + kOffsetBytes;
  const CUdeviceptr device = buffers.device + kOffsetBytes;
  fill_pattern(host, buffers.size_bytes, kSeed);
  BRAID_TRY(driver.check(to_device(device, host, buffers.size_bytes), "copying to the GPU"));
  BRAID_TRY(driver.check(driver.cuCtxSynchronize(), "waiting for the copy"));
  std::memset(buffers.host, 0, buffers.size_bytes + kOffsetBytes);
  BRAID_TRY(driver.check(to_host(host, device, buffers.size_bytes), "copying from the GPU"));
  BRAID_TRY(driver.check(driver.cuCtxSynchronize(), "waiting for the copy"));
  if (!has_pattern(host, buffers.size_bytes, kSeed))
    return Status::error("a copy to the GPU and back changed bytes");
  return {};
}

// `library` is the driver's.
Status copy_and_verify(const cuda::Driver& driver, void* library, size_t size_bytes) {
  GpuObjects objects(driver);
  const size_t room_bytes = size_bytes + kOffsetBytes;
  const Buffers buffers{size_bytes, objects.pinned(room_bytes), objects.memory(room_bytes)};
  BRAID_TRY(objects.status());
  BRAID_TRY(round_trip(
      driver, buffers, [&](auto... copy) { return driver.cuMemcpyHtoDAsync(copy..., nullptr); },
      [&](auto... copy) { return driver.cuMemcpyDtoHAsync(copy..., nullptr); }));

  const auto resolver =
      reinterpret_cast<decltype(&::cuGetProcAddress)>(dlsym(library, "cuGetProcAddress_v2"));
  if (resolver == nullptr)
    return Status::error("the driver has no cuGetProcAddress_v2", "Install one for CUDA 12");
  void* to_device = nullptr;
  void* to_host = nullptr;
  resolver("cuMemcpyHtoD", &to_device, 12000, CU_GET_PROC_ADDRESS_DEFAULT, nullptr);
  resolver("cuMemcpyDtoH", &to_host, 12000, CU_GET_PROC_ADDRESS_DEFAULT, nullptr);
  if (to_device == nullptr || to_host == nullptr)
    return Status::error("cuGetProcAddress finds no cuMemcpyHtoD or cuMemcpyDtoH");
  return round_trip(driver, buffers, reinterpret_cast<HtoDFunction*>(to_device),
                    reinterpret_cast<DtoHFunction*>(to_host));
}

Status use_every_gpu(size_t size_bytes) {
  void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  BRAID_LET(driver, cuda::open_driver());  // every function of it comes from dlsym
  int count = 0;
  BRAID_TRY(driver.check(driver.cuInit(0), "cuInit"));
  BRAID_TRY(driver.check(driver.cuDeviceGetCount(&count), "counting the GPUs"));
  for (int gpu = 0; gpu < count; ++gpu) {
    CUcontext context = nullptr;
    const std::string what = "GPU " + std::to_string(gpu);
    BRAID_TRY(driver.check(driver.cuDevicePrimaryCtxRetain(&context, gpu), what));
    BRAID_TRY(driver.check(driver.cuCtxSetCurrent(context), what));
    if (const Status status = copy_and_verify(driver, library, size_bytes); !status.ok())
      return Status::error(what + ": " + status.message());
  }
  return {};
}

}  // namespace

int probe(size_t size_bytes) {
  const Status status = use_every_gpu(size_bytes + kOffsetBytes);
  return status.ok() ? 0 : fail(status);
}

}  // namespace braid::tools
