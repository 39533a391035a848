// The client of `braid doctor`: a driver-API program that knows nothing of braid. It copies random
// bytes to GPU 0 and back, through entry points from dlsym and from cuGetProcAddress, and compares.
#include <dlfcn.h>
#include <fmt/core.h>

#include <cstdint>
#include <cstring>

#include "base/try.h"
#include "cuda/driver.h"
#include "tools/commands.h"
#include "tools/pattern.h"

namespace braid::tools {
namespace {

constexpr size_t kOffsetBytes = 7;
constexpr uint64_t kSeed = 20261121;

using HtoDFunction = CUresult(CUdeviceptr, const void*, size_t);
using DtoHFunction = CUresult(void*, CUdeviceptr, size_t);

struct Buffers {
  size_t size_bytes = 0;    // of a copy
  uint8_t* host = nullptr;  // pinned
  CUdeviceptr device = 0;
};

// Copies a pattern to the GPU and back with the two functions given.
template <typename ToDevice, typename ToHost>
Status round_trip(const cuda::Driver& driver, const Buffers& buffers, ToDevice to_device,
                  ToHost to_host) {
  fill_pattern(buffers.host + kOffsetBytes, buffers.size_bytes, kSeed);
  BRAID_TRY(driver.check(to_device(), "copying to GPU 0"));
  BRAID_TRY(driver.check(driver.cuCtxSynchronize(), "waiting for the copy"));
  std::memset(buffers.host, 0, buffers.size_bytes + kOffsetBytes);
  BRAID_TRY(driver.check(to_host(), "copying from GPU 0"));
  BRAID_TRY(driver.check(driver.cuCtxSynchronize(), "waiting for the copy"));
  if (!has_pattern(buffers.host + kOffsetBytes, buffers.size_bytes, kSeed))
    return Status::error("a copy to GPU 0 and back changed bytes");
  return {};
}

Status set_up(const cuda::Driver& driver, Buffers& buffers) {
  CUcontext context = nullptr;
  void* host = nullptr;
  Status status = driver.check(driver.cuInit(0), "cuInit");
  if (status.ok())
    status = driver.check(driver.cuDevicePrimaryCtxRetain(&context, 0), "the context of GPU 0");
  if (status.ok()) status = driver.check(driver.cuCtxSetCurrent(context), "the context of GPU 0");
  if (status.ok())
    status = driver.check(driver.cuMemHostAlloc(&host, buffers.size_bytes + kOffsetBytes, 0),
                          "pinning host memory");
  if (status.ok())
    status = driver.check(driver.cuMemAlloc(&buffers.device, buffers.size_bytes + kOffsetBytes),
                          "allocating on GPU 0");
  buffers.host = static_cast<uint8_t*>(host);
  return status;
}

Status copy_and_verify(size_t size_bytes) {
  void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  const auto driver = cuda::open_driver();  // every function of it comes from dlsym
  if (!driver.ok()) return driver.status();
  const cuda::Driver& cuda = driver.value();
  Buffers buffers{size_bytes};
  BRAID_TRY(set_up(cuda, buffers));
  uint8_t* const host = buffers.host + kOffsetBytes;
  const CUdeviceptr device = buffers.device + kOffsetBytes;
  Status status = round_trip(
      cuda, buffers, [&] { return cuda.cuMemcpyHtoDAsync(device, host, size_bytes, nullptr); },
      [&] { return cuda.cuMemcpyDtoHAsync(host, device, size_bytes, nullptr); });
  if (!status.ok()) return status;

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
  return round_trip(
      cuda, buffers,
      [&] { return reinterpret_cast<HtoDFunction*>(to_device)(device, host, size_bytes); },
      [&] { return reinterpret_cast<DtoHFunction*>(to_host)(host, device, size_bytes); });
}

}  // namespace

int probe(size_t size_bytes) {
  const Status status = copy_and_verify(size_bytes + kOffsetBytes);
  return status.ok() ? 0 : fail(status);
}

}  // namespace braid::tools
