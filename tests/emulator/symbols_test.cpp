// Finding entry points, those that are not emulated, captures, faults, and arguments from nowhere.
#include <cstring>

#include "fixture.h"
#include "process_test.h"

namespace braid::emulator_test {
namespace {

using GetProcAddress = CUresult (*)(const char*, void**, int, cuuint64_t,
                                    CUdriverProcAddressQueryResult*);

TEST(Symbols, GetProcAddressKnowsVersionsAndStreams) {
  Emulated server;
  const auto get = server.symbol<GetProcAddress>("cuGetProcAddress_v2");
  const auto expect = [&](const char* name, int version, cuuint64_t flags, const char* symbol) {
    void* found = nullptr;
    CUdriverProcAddressQueryResult status{};
    EXPECT_EQ(get(name, &found, version, flags, &status), CUDA_SUCCESS) << name;
    EXPECT_EQ(status, CU_GET_PROC_ADDRESS_SUCCESS);
    EXPECT_EQ(found, dlsym(server.handle, symbol)) << name << " is not " << symbol;
  };
  constexpr cuuint64_t kLegacy = CU_GET_PROC_ADDRESS_LEGACY_STREAM;
  constexpr cuuint64_t kThread = CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;
  expect("cuMemAlloc", 12000, 0, "cuMemAlloc_v2");
  expect("cuMemAlloc", 3000, 0, "cuMemAlloc");
  expect("cuMemcpyHtoDAsync", 12000, kLegacy, "cuMemcpyHtoDAsync_v2");
  expect("cuMemcpyHtoDAsync", 12000, kThread, "cuMemcpyHtoDAsync_v2_ptsz");
  expect("cuMemcpyHtoD", 12000, kThread, "cuMemcpyHtoD_v2_ptds");
  expect("cuStreamWaitValue32", 11000, 0, "cuStreamWaitValue32");
  expect("cuStreamWaitValue32", 12000, kThread, "cuStreamWaitValue32_v2_ptsz");
  expect("cuCtxCreate", 3020, 0, "cuCtxCreate_v2");
  expect("cuCtxCreate", 13000, 0, "cuCtxCreate_v4");
  expect("cuGetProcAddress", 11030, 0, "cuGetProcAddress");
  expect("cuGetProcAddress", 12000, 0, "cuGetProcAddress_v2");
  expect("cuMemcpyBatchAsync", 12080, 0, "cuMemcpyBatchAsync");
  expect("cuMemcpyBatchAsync", 12080, kThread, "cuMemcpyBatchAsync_ptsz");
  expect("cuMemcpyBatchAsync", 13000, kThread, "cuMemcpyBatchAsync_v2_ptsz");
  expect("cuMemcpy3DBatchAsync", 12080, 0, "cuMemcpy3DBatchAsync");
  expect("cuMemcpy3DBatchAsync", 13000, 0, "cuMemcpy3DBatchAsync_v2");
  expect("cuMemcpy2DAsync", 12000, kThread, "cuMemcpy2DAsync_v2_ptsz");
  expect("cuMemcpy3DPeer", 12000, kThread, "cuMemcpy3DPeer_ptds");
  expect("cuInit", 12000, kThread, "cuInit");

  void* found = &found;
  CUdriverProcAddressQueryResult status{};
  EXPECT_EQ(get("cuNoSuchThing", &found, 12000, 0, &status), CUDA_ERROR_NOT_FOUND);
  EXPECT_EQ(status, CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
  EXPECT_EQ(found, nullptr);
  EXPECT_EQ(get("cuMemcpyBatchAsync", &found, 12000, 0, &status), CUDA_ERROR_NOT_FOUND);
  EXPECT_EQ(status, CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT);
  EXPECT_EQ(get(nullptr, &found, 12000, 0, &status), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(get("cuInit", nullptr, 12000, 0, &status), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(get("cuInit", &found, 12000, 64, &status), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(get("cuInit", &found, 12000, 0, nullptr), CUDA_SUCCESS);
}

TEST(Symbols, WhatIsNotEmulatedSaysItsNameOnce) {
  Emulated server;
  server.use(0);
  const auto create = server.symbol<decltype(&::cuMulticastCreate)>("cuMulticastCreate");
  CUmemGenericAllocationHandle handle = 0;
  const CUmulticastObjectProp wanted{};
  testing::internal::CaptureStderr();
  EXPECT_EQ(create(&handle, &wanted), CUDA_ERROR_NOT_SUPPORTED);
  EXPECT_EQ(create(&handle, &wanted), CUDA_ERROR_NOT_SUPPORTED);
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_NE(said.find("cuMulticastCreate"), std::string::npos);
  EXPECT_EQ(std::count(said.begin(), said.end(), '\n'), 1) << said;
}

TEST(Symbols, ErrorsHaveNamesAndWords) {
  Emulated server;
  const char* text = nullptr;
  EXPECT_EQ(server.cu.cuGetErrorName(CUDA_ERROR_OUT_OF_MEMORY, &text), CUDA_SUCCESS);
  EXPECT_STREQ(text, "CUDA_ERROR_OUT_OF_MEMORY");
  EXPECT_EQ(server.cu.cuGetErrorString(CUDA_ERROR_OUT_OF_MEMORY, &text), CUDA_SUCCESS);
  EXPECT_STREQ(text, "out of memory");
  EXPECT_EQ(server.cu.cuGetErrorString(static_cast<CUresult>(12345), &text),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(text, nullptr);
  EXPECT_EQ(server.cu.cuGetErrorName(CUDA_SUCCESS, nullptr), CUDA_ERROR_INVALID_VALUE);
}

struct Capture : testing::Test {
  Emulated server;
  CUcontext context = server.use(0);
  CUstream stream = server.stream(CU_STREAM_DEFAULT);
  CUdeviceptr device = server.device_memory(64);
  uint8_t* host = server.pinned_memory(64);
  CUresult (*begin)(CUstream, CUstreamCaptureMode) =
      server.symbol<CUresult (*)(CUstream, CUstreamCaptureMode)>("cuStreamBeginCapture_v2");
  CUresult (*end)(CUstream,
                  CUgraph*) = server.symbol<CUresult (*)(CUstream, CUgraph*)>("cuStreamEndCapture");
  CUgraph graph = nullptr;
};

TEST_F(Capture, RecordsInsteadOfRunning) {
  ASSERT_EQ(server.cu.cuMemsetD8(device, 0, 64), CUDA_SUCCESS);
  std::memset(host, 1, 64);
  ASSERT_EQ(begin(stream, CU_STREAM_CAPTURE_MODE_RELAXED), CUDA_SUCCESS);
  CUstreamCaptureStatus status{};
  ASSERT_EQ(server.cu.cuStreamIsCapturing(stream, &status), CUDA_SUCCESS);
  EXPECT_EQ(status, CU_STREAM_CAPTURE_STATUS_ACTIVE);
  EXPECT_EQ(server.cu.cuMemcpyHtoDAsync(device, host, 64, stream), CUDA_SUCCESS);
  // Another stream joins by an event.
  CUstream joined = server.stream();
  CUevent event = server.recorded(stream);
  ASSERT_EQ(server.cu.cuStreamWaitEvent(joined, event, 0), CUDA_SUCCESS);
  ASSERT_EQ(server.cu.cuStreamIsCapturing(joined, &status), CUDA_SUCCESS);
  EXPECT_EQ(status, CU_STREAM_CAPTURE_STATUS_ACTIVE);
  EXPECT_EQ(server.cu.cuEventQuery(event), CUDA_ERROR_CAPTURED_EVENT);
  ASSERT_EQ(end(stream, &graph), CUDA_SUCCESS);
  EXPECT_NE(graph, nullptr);
  ASSERT_EQ(server.cu.cuStreamIsCapturing(joined, &status), CUDA_SUCCESS);
  EXPECT_EQ(status, CU_STREAM_CAPTURE_STATUS_NONE);
  uint8_t byte = 9;
  ASSERT_EQ(server.cu.cuMemcpyDtoH(&byte, device, 1), CUDA_SUCCESS);
  EXPECT_EQ(byte, 0);
  EXPECT_EQ(end(stream, &graph), CUDA_ERROR_ILLEGAL_STATE);
}

TEST_F(Capture, SynchronisingSpoilsIt) {
  ASSERT_EQ(begin(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL), CUDA_SUCCESS);
  EXPECT_EQ(server.cu.cuStreamSynchronize(stream), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  EXPECT_EQ(end(stream, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  EXPECT_EQ(graph, nullptr);
}

TEST_F(Capture, UnsafeCallsAreRefusedUnlessTheThreadIsRelaxed) {
  ASSERT_EQ(begin(stream, CU_STREAM_CAPTURE_MODE_GLOBAL), CUDA_SUCCESS);
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
  ASSERT_EQ(server.cu.cuThreadExchangeStreamCaptureMode(&mode), CUDA_SUCCESS);
  EXPECT_EQ(mode, CU_STREAM_CAPTURE_MODE_GLOBAL);
  CUdeviceptr memory = 0;
  EXPECT_EQ(server.cu.cuMemAlloc(&memory, 64), CUDA_SUCCESS);
  ASSERT_EQ(server.cu.cuThreadExchangeStreamCaptureMode(&mode), CUDA_SUCCESS);
  EXPECT_EQ(server.cu.cuMemAlloc(&memory, 64), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  EXPECT_EQ(end(stream, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
}

TEST_F(Capture, TheLegacyStreamIsForbidden) {
  EXPECT_EQ(begin(nullptr, CU_STREAM_CAPTURE_MODE_GLOBAL), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  ASSERT_EQ(begin(stream, CU_STREAM_CAPTURE_MODE_RELAXED), CUDA_SUCCESS);
  EXPECT_EQ(server.cu.cuMemcpyHtoDAsync(device, host, 64, nullptr),
            CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
  EXPECT_EQ(end(stream, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
}

TEST(Faults, TheNthCallFails) {
  Emulated server("h200x4", R"({"calls": [{"name": "cuMemAlloc_v2", "nth": 2,
                                           "error": "CUDA_ERROR_OUT_OF_MEMORY"}]})");
  server.use(0);
  CUdeviceptr memory = 0;
  EXPECT_EQ(server.cu.cuMemAlloc(&memory, 64), CUDA_SUCCESS);
  EXPECT_EQ(server.cu.cuMemAlloc(&memory, 64), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(server.cu.cuMemAlloc(&memory, 64), CUDA_SUCCESS);
}

TEST(Faults, ALinkSlowsForAWhile) {
  const auto timed = [](const std::string& faults) {
    Emulated server("h200x4", faults);
    server.use(0);
    CUdeviceptr device = server.device_memory(100'000'000);
    uint8_t* host = server.pinned_memory(100'000'000);
    CUstream stream = server.stream();
    CUevent start = server.recorded(stream);
    EXPECT_EQ(server.cu.cuMemcpyHtoDAsync(device, host, 100'000'000, stream), CUDA_SUCCESS);
    CUevent end = server.recorded(stream);
    EXPECT_EQ(server.cu.cuStreamSynchronize(stream), CUDA_SUCCESS);
    return std::to_string(server.elapsed_us(start, end));
  };
  const double healthy = std::stod(in_child([&] { return timed(""); }).output);
  const double slowed = std::stod(in_child([&] {
                                    return timed(R"({"links": [{"ends": ["numa0", "gpu0"],
                                       "factor": 0.5, "from_us": 500, "to_us": 1100}]})");
                                  }).output);
  EXPECT_NEAR(slowed - healthy, 300, 0.1);  // 600 us at half speed
}

TEST(Faults, WrongFaultsAreExplained) {
  for (const char* faults : {"{", R"({"calls": [{"name": "x", "nth": 1, "error": "OOPS"}]})",
                             R"({"links": [{"ends": ["a", "b"], "factor": 1, "from_us": 0}]})",
                             R"({"busy": [{"gpu": 77, "from_us": 0, "to_us": 1}]})"}) {
    const ChildResult child = in_child([&] {
      setenv("BRAID_FAULTS", faults, 1);
      setenv("BRAID_SERVER", (std::string(BRAID_PROFILES) + "/h200x4.json").c_str(), 1);
      void* handle = dlopen(BRAID_EMULATOR, RTLD_NOW);
      testing::internal::CaptureStderr();
      const auto init = reinterpret_cast<CUresult (*)(unsigned)>(dlsym(handle, "cuInit"));
      const CUresult result = init(0);
      return std::to_string(result) + testing::internal::GetCapturedStderr();
    });
    EXPECT_EQ(child.status, 0);
    EXPECT_EQ(child.output.rfind("100braid emulator: BRAID_FAULTS: ", 0), 0u) << child.output;
  }
}

}  // namespace
}  // namespace braid::emulator_test
