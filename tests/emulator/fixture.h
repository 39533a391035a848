// What the emulator's tests share: the built driver, opened as a program opens it. Each TEST is a
// process of its own (gtest_discover_tests), so each starts with a fresh server at time 0.
#pragma once

#include <cuda.h>
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "cuda/driver.h"

namespace braid::emulator_test {

/// A GPU fault stays in its context, so that a test can look at what it left.
inline const std::string kFaultsStay = R"({"contexts_fail_alone": true})";

/// Opens lib/braid/emulator/libcuda.so.1 with a profile; h200x4 unless told otherwise.
class Emulated {
 public:
  explicit Emulated(const std::string& profile = "h200x4", const std::string& faults = "") {
    setenv("BRAID_SERVER", (std::string(BRAID_PROFILES) + "/" + profile + ".json").c_str(), 1);
    if (!faults.empty()) setenv("BRAID_FAULTS", faults.c_str(), 1);
    handle = dlopen(BRAID_EMULATOR, RTLD_NOW | RTLD_LOCAL);
    auto loaded = cuda::load_driver([this](const char* name) { return dlsym(handle, name); });
    EXPECT_TRUE(loaded.ok()) << loaded.status().message();
    cu = loaded.value();
    EXPECT_EQ(cu.cuInit(0), CUDA_SUCCESS);
  }

  /// Retains the device's primary context and makes it current.
  CUcontext use(int device) {
    CUcontext context = nullptr;
    EXPECT_EQ(cu.cuDevicePrimaryCtxRetain(&context, device), CUDA_SUCCESS);
    EXPECT_EQ(cu.cuCtxSetCurrent(context), CUDA_SUCCESS);
    return context;
  }
  CUdeviceptr device_memory(size_t size) {
    CUdeviceptr address = 0;
    EXPECT_EQ(cu.cuMemAlloc(&address, size), CUDA_SUCCESS);
    return address;
  }
  uint8_t* pinned_memory(size_t size) {
    void* address = nullptr;
    EXPECT_EQ(cu.cuMemHostAlloc(&address, size, CU_MEMHOSTALLOC_PORTABLE), CUDA_SUCCESS);
    return static_cast<uint8_t*>(address);
  }
  CUstream stream(unsigned flags = CU_STREAM_NON_BLOCKING) {
    CUstream made = nullptr;
    EXPECT_EQ(cu.cuStreamCreate(&made, flags), CUDA_SUCCESS);
    return made;
  }
  CUevent event(unsigned flags = CU_EVENT_DEFAULT) {
    CUevent made = nullptr;
    EXPECT_EQ(cu.cuEventCreate(&made, flags), CUDA_SUCCESS);
    return made;
  }
  CUevent recorded(CUstream stream) {
    CUevent made = event();
    EXPECT_EQ(cu.cuEventRecord(made, stream), CUDA_SUCCESS);
    return made;
  }
  double elapsed_us(CUevent start, CUevent end) {
    float milliseconds = -1;
    EXPECT_EQ(cu.cuEventElapsedTime(&milliseconds, start, end), CUDA_SUCCESS);
    return milliseconds * 1e3;
  }
  /// An entry point that cuda::Driver does not have.
  template <typename Function>
  Function symbol(const char* name) {
    void* found = dlsym(handle, name);
    EXPECT_NE(found, nullptr) << name;
    return reinterpret_cast<Function>(found);
  }

  void* handle = nullptr;
  cuda::Driver cu;
};

inline std::vector<uint8_t> random_bytes(size_t size, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<uint8_t> bytes(size);
  for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(random());
  return bytes;
}

inline double gbps(double bytes, double microseconds) { return bytes / microseconds * 1e-3; }

}  // namespace braid::emulator_test
