// The driver in a process: starting without a server, forking, exiting with work pending, equal
// results in equal runs.
#include <sys/resource.h>

#include <cstring>
#include <fstream>
#include <sstream>

#include "cuda/kernels/image.h"
#include "cuda/kernels/pull.h"
#include "fixture.h"
#include "process_test.h"

namespace braid::emulator_test {
namespace {

TEST(Life, WithoutAServerThereIsNoDevice) {
  unsetenv("BRAID_SERVER");
  void* handle = dlopen(BRAID_EMULATOR, RTLD_NOW);
  ASSERT_NE(handle, nullptr);
  const auto init = reinterpret_cast<CUresult (*)(unsigned)>(dlsym(handle, "cuInit"));
  const auto count = reinterpret_cast<CUresult (*)(int*)>(dlsym(handle, "cuDeviceGetCount"));
  int devices = 0;
  EXPECT_EQ(count(&devices), CUDA_ERROR_NOT_INITIALIZED);
  testing::internal::CaptureStderr();
  EXPECT_EQ(init(0), CUDA_ERROR_NO_DEVICE);
  EXPECT_EQ(init(0), CUDA_ERROR_NO_DEVICE);
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_NE(said.find("BRAID_SERVER"), std::string::npos);
  EXPECT_EQ(std::count(said.begin(), said.end(), '\n'), 1) << said;
  EXPECT_EQ(count(&devices), CUDA_ERROR_NOT_INITIALIZED);
  EXPECT_EQ(init(1), CUDA_ERROR_INVALID_VALUE);
}

// A sanitizer leaves a program little; what GPUs do not use must not cost addresses.
TEST(Life, EveryGpuHasMemoryInAProcessOfFewAddresses) {
  Emulated server("h20x8");
  uint64_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  const rlim_t few = pages * static_cast<uint64_t>(sysconf(_SC_PAGESIZE)) + (uint64_t{256} << 30);
  const rlimit limit{few, few};
  ASSERT_EQ(setrlimit(RLIMIT_AS, &limit), 0);
  for (int gpu = 0; gpu < 8; ++gpu) {
    server.use(gpu);
    server.device_memory(1 << 20);
  }
}

TEST(Life, ABadProfileIsExplained) {
  setenv("BRAID_SERVER", "/nonexistent/server.json", 1);
  void* handle = dlopen(BRAID_EMULATOR, RTLD_NOW);
  const auto init = reinterpret_cast<CUresult (*)(unsigned)>(dlsym(handle, "cuInit"));
  testing::internal::CaptureStderr();
  EXPECT_EQ(init(0), CUDA_ERROR_NO_DEVICE);
  EXPECT_NE(testing::internal::GetCapturedStderr().find("/nonexistent/server.json"),
            std::string::npos);
}

TEST(Life, VisibleDevicesAreChosenAndOrdered) {
  setenv("CUDA_VISIBLE_DEVICES", "3,1", 1);
  Emulated server;
  int count = 0;
  ASSERT_EQ(server.cu.cuDeviceGetCount(&count), CUDA_SUCCESS);
  EXPECT_EQ(count, 2);
  const auto uuid = server.symbol<CUresult (*)(CUuuid*, CUdevice)>("cuDeviceGetUuid_v2");
  CUuuid first;
  ASSERT_EQ(uuid(&first, 0), CUDA_SUCCESS);
  EXPECT_EQ(first.bytes[15], 3);
}

TEST(Life, VisibleDevicesMayBeUuids) {
  setenv("CUDA_VISIBLE_DEVICES",
         "GPU-62726169-6468-3230-7838-000000000005,GPU-62726169-6468-3230-7838-000000000002,"
         "GPU-62726169,0",  // the third could be any of them: the list ends
         1);
  Emulated server("h20x8");
  int count = 0;
  ASSERT_EQ(server.cu.cuDeviceGetCount(&count), CUDA_SUCCESS);
  EXPECT_EQ(count, 2);
  CUuuid uuid;
  ASSERT_EQ(server.cu.cuDeviceGetUuid(&uuid, 1), CUDA_SUCCESS);
  EXPECT_EQ(uuid.bytes[15], 2);
}

TEST(Life, AForkedChildHasNoDriver) {
  Emulated server;
  server.use(0);
  const ChildResult child = in_child([&] {
    CUdeviceptr memory = 0;
    const bool right = server.cu.cuMemAlloc(&memory, 4) == CUDA_ERROR_NOT_INITIALIZED &&
                       server.cu.cuInit(0) == CUDA_ERROR_NOT_INITIALIZED;
    return std::string(right ? "right" : "wrong");
  });
  EXPECT_EQ(child.status, 0);
  EXPECT_EQ(child.output, "right");
  server.device_memory(4);  // the parent goes on
}

TEST(Life, ExitWithWorkPendingNeitherHangsNorCrashes) {
  for (const bool gated : {false, true}) {
    const ChildResult child = in_child(
        [&] {
          Emulated server;
          server.use(0);
          uint8_t* host = server.pinned_memory(64 << 20);
          CUdeviceptr device = server.device_memory(64 << 20);
          CUstream stream = server.stream();
          if (gated) {
            EXPECT_EQ(server.cu.cuStreamWaitValue32(stream, device, 1, CU_STREAM_WAIT_VALUE_EQ),
                      CUDA_SUCCESS);
          }
          for (int i = 0; i < 100; ++i)
            EXPECT_EQ(server.cu.cuMemcpyHtoDAsync(device, host, 64 << 20, stream), CUDA_SUCCESS);
          return std::string();
        },
        7);
    EXPECT_EQ(child.status, 7) << "gated: " << gated;
  }
}

TEST(Life, ContextsDieWithWorkThatCannotGoOn) {
  Emulated server;
  server.use(0);
  CUdeviceptr device = server.device_memory(4);
  ASSERT_EQ(server.cu.cuStreamWaitValue32(server.stream(), device, 99, CU_STREAM_WAIT_VALUE_EQ),
            CUDA_SUCCESS);
  EXPECT_EQ(server.cu.cuDevicePrimaryCtxRelease(0), CUDA_SUCCESS);
  EXPECT_EQ(server.cu.cuMemFree(device), CUDA_ERROR_CONTEXT_IS_DESTROYED);
  server.use(0);
  server.device_memory(4);
}

// Copies, events and kernels over several GPUs; every event time, exactly.
std::string program() {
  Emulated server("h20x8");
  std::ostringstream out;
  out << std::hexfloat;
  std::vector<CUcontext> contexts;
  std::vector<CUevent> events;
  std::vector<CUstream> streams;
  for (int gpu = 0; gpu < 8; ++gpu) {
    contexts.push_back(server.use(gpu));
    if (gpu == 0) continue;
    EXPECT_EQ(server.cu.cuCtxEnablePeerAccess(contexts[0], 0), CUDA_SUCCESS);
  }
  server.use(0);
  constexpr size_t kSize = 24 << 20;
  uint8_t* host = server.pinned_memory(kSize);
  CUdeviceptr device = server.device_memory(kSize);
  CUdeviceptr words = server.device_memory(4096);
  EXPECT_EQ(server.cu.cuMemsetD8(words, 0, 4096), CUDA_SUCCESS);
  EXPECT_EQ(server.cu.cuCtxSynchronize(), CUDA_SUCCESS);
  CUevent zero = server.recorded(nullptr);
  EXPECT_EQ(server.cu.cuEventSynchronize(zero), CUDA_SUCCESS);
  std::mt19937 random(11);
  for (uint32_t gpu = 0; gpu < 8; ++gpu) {
    server.use(static_cast<int>(gpu));
    CUmodule module = nullptr;
    CUfunction function = nullptr;
    EXPECT_EQ(server.cu.cuModuleLoadData(&module, cuda::pull_kernel_image()), CUDA_SUCCESS);
    EXPECT_EQ(server.cu.cuModuleGetFunction(&function, module, cuda::kVectorKernelName),
              CUDA_SUCCESS);
    CUdeviceptr occupancy = server.device_memory(sizeof(cuda::LinkOccupancy));
    EXPECT_EQ(server.cu.cuMemsetD8(occupancy, 0, sizeof(cuda::LinkOccupancy)), CUDA_SUCCESS);
    CUdeviceptr own = server.device_memory(kSize);
    cuda::PullArgs args{};
    args.source = reinterpret_cast<uint64_t>(host);
    args.destination = device;
    args.size_bytes = kSize;
    args.counters = words;
    args.report = reinterpret_cast<uint64_t>(server.pinned_memory(sizeof(cuda::TransferReport)));
    args.occupancy = occupancy;
    args.slice_bytes = 131072;
    args.slice_count = kSize / 131072;
    args.path = gpu;
    args.total_blocks = 32;
    args.rank = gpu == 0 ? cuda::kBulkDirectRank : cuda::kBulkRelayRank;
    args.relay_slot = cuda::kNoRelaySlot;
    void* params[] = {&args};
    CUstream stream = server.stream();
    EXPECT_EQ(server.cu.cuLaunchKernel(function, 4, 1, 1, 512, 1, 1, 0, stream, params, nullptr),
              CUDA_SUCCESS);
    EXPECT_EQ(server.cu.cuMemcpyHtoDAsync(own, host, 1 + random() % kSize, stream), CUDA_SUCCESS);
    streams.push_back(stream);
    if (gpu == 0) events.push_back(server.recorded(stream));
  }
  for (CUstream stream : streams) EXPECT_EQ(server.cu.cuStreamSynchronize(stream), CUDA_SUCCESS);
  server.use(0);
  for (int i = 0; i < 20; ++i) {
    EXPECT_EQ(server.cu.cuMemcpyHtoDAsync(device, host, 1 + random() % kSize, streams[0]),
              CUDA_SUCCESS);
    events.push_back(server.recorded(streams[0]));
    while (server.cu.cuStreamQuery(streams[0]) == CUDA_ERROR_NOT_READY) {
    }
    events.push_back(server.recorded(streams[0]));
  }
  EXPECT_EQ(server.cu.cuStreamSynchronize(streams[0]), CUDA_SUCCESS);
  for (CUevent event : events) {
    float milliseconds = 0;
    EXPECT_EQ(server.cu.cuEventElapsedTime(&milliseconds, zero, event), CUDA_SUCCESS);
    out << milliseconds << ' ';
  }
  return out.str();
}

TEST(Life, EqualProgramsGetEqualTimes) {
  const ChildResult first = in_child(program);
  const ChildResult second = in_child(program);
  EXPECT_EQ(first.status, 0);
  EXPECT_GT(first.output.size(), 100u);
  EXPECT_EQ(first.output, second.output);
}

}  // namespace
}  // namespace braid::emulator_test
