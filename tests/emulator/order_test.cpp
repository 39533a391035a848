// The order of work: streams, default streams, events, values, host functions.
#include <atomic>
#include <chrono>
#include <cstring>
#include <mutex>
#include <thread>

#include "fixture.h"
#include "gate.h"

namespace braid::emulator_test {
namespace {

// Whether a marker put into `stream` now is reached, given plenty of virtual time.
bool goes_on(Emulated& server, CUstream stream) {
  CUevent marker = server.recorded(stream);
  for (int i = 0; i < 5000; ++i) {
    const CUresult result = server.cu.cuEventQuery(marker);
    if (result == CUDA_SUCCESS) return true;
    EXPECT_EQ(result, CUDA_ERROR_NOT_READY);
  }
  return false;
}

struct Order : testing::Test {
  Emulated server;
  CUcontext context = server.use(0);
  Gate gate{server};
  CUstream blocking = server.stream(CU_STREAM_DEFAULT);
  CUstream other = server.stream(CU_STREAM_DEFAULT);
  CUstream free = server.stream(CU_STREAM_NON_BLOCKING);

  void TearDown() override {
    gate.open();
    EXPECT_EQ(server.cu.cuCtxSynchronize(), CUDA_SUCCESS);
  }
};

TEST_F(Order, LegacyStreamWaitsForBlockingStreams) {
  gate.close(blocking);
  EXPECT_TRUE(goes_on(server, other));
  EXPECT_TRUE(goes_on(server, free));
  EXPECT_FALSE(goes_on(server, nullptr));
  EXPECT_FALSE(goes_on(server, CU_STREAM_LEGACY));
  EXPECT_FALSE(goes_on(server, other));  // behind the legacy stream's markers now
  EXPECT_TRUE(goes_on(server, free));
}

TEST_F(Order, BlockingStreamsWaitForTheLegacyStream) {
  gate.close(nullptr);
  EXPECT_FALSE(goes_on(server, blocking));
  EXPECT_FALSE(goes_on(server, CU_STREAM_PER_THREAD));
  EXPECT_TRUE(goes_on(server, free));
}

TEST_F(Order, NonBlockingStreamsAreFree) {
  gate.close(free);
  EXPECT_TRUE(goes_on(server, nullptr));
  EXPECT_TRUE(goes_on(server, blocking));
}

TEST_F(Order, ThePerThreadStreamIsABlockingStream) {
  gate.close(CU_STREAM_PER_THREAD);
  EXPECT_TRUE(goes_on(server, blocking));
  EXPECT_FALSE(goes_on(server, nullptr));
}

TEST_F(Order, EachThreadHasItsOwnStream) {
  gate.close(CU_STREAM_PER_THREAD);
  std::thread([&] {
    ASSERT_EQ(server.cu.cuCtxSetCurrent(context), CUDA_SUCCESS);
    EXPECT_TRUE(goes_on(server, CU_STREAM_PER_THREAD));
  }).join();
  EXPECT_FALSE(goes_on(server, CU_STREAM_PER_THREAD));
}

TEST_F(Order, PtszSymbolsUseTheThreadsStream) {
  const auto query = server.symbol<CUresult (*)(CUstream)>("cuStreamQuery_ptsz");
  const auto wait = server.symbol<CUresult (*)(CUstream, CUdeviceptr, cuuint32_t, unsigned)>(
      "cuStreamWaitValue32_v2_ptsz");
  CUdeviceptr word = server.device_memory(4);
  ASSERT_EQ(server.cu.cuMemsetD8(word, 0, 4), CUDA_SUCCESS);
  ASSERT_EQ(server.cu.cuCtxSynchronize(), CUDA_SUCCESS);
  ASSERT_EQ(wait(nullptr, word, 7, CU_STREAM_WAIT_VALUE_EQ), CUDA_SUCCESS);
  EXPECT_EQ(query(nullptr), CUDA_ERROR_NOT_READY);
  EXPECT_EQ(server.cu.cuStreamQuery(CU_STREAM_PER_THREAD), CUDA_ERROR_NOT_READY);
  ASSERT_EQ(server.cu.cuStreamWriteValue32(free, word, 7, 0), CUDA_SUCCESS);
  EXPECT_EQ(server.cu.cuStreamSynchronize(CU_STREAM_PER_THREAD), CUDA_SUCCESS);
  EXPECT_EQ(query(nullptr), CUDA_SUCCESS);
}

TEST_F(Order, ContextsDoNotWaitForEachOther) {
  gate.close(nullptr);
  CUcontext second = server.use(1);
  EXPECT_NE(second, context);
  EXPECT_TRUE(goes_on(server, nullptr));
  ASSERT_EQ(server.cu.cuCtxSetCurrent(context), CUDA_SUCCESS);
}

TEST_F(Order, WorkGoesOnAfterItsStreamIsDestroyed) {
  uint8_t* host = server.pinned_memory(1);
  CUdeviceptr device = server.device_memory(1);
  *host = 42;
  gate.close(free);
  ASSERT_EQ(server.cu.cuMemcpyHtoDAsync(device, host, 1, free), CUDA_SUCCESS);
  ASSERT_EQ(server.cu.cuStreamDestroy(free), CUDA_SUCCESS);
  EXPECT_EQ(server.cu.cuStreamQuery(free), CUDA_ERROR_INVALID_HANDLE);
  gate.open();
  ASSERT_EQ(server.cu.cuCtxSynchronize(), CUDA_SUCCESS);
  uint8_t byte = 0;
  ASSERT_EQ(server.cu.cuMemcpyDtoH(&byte, device, 1), CUDA_SUCCESS);
  EXPECT_EQ(byte, 42);
}

TEST_F(Order, AnotherThreadCanOpenTheGate) {
  gate.close(free);
  std::thread opener([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(30));
    gate.open();
  });
  EXPECT_EQ(server.cu.cuStreamSynchronize(free), CUDA_SUCCESS);
  opener.join();
}

TEST_F(Order, AWaitTakesTheRecordOfItsCall) {
  CUevent event = server.recorded(other);
  ASSERT_EQ(server.cu.cuStreamWaitEvent(free, event, 0), CUDA_SUCCESS);
  gate.close(blocking);
  ASSERT_EQ(server.cu.cuEventRecord(event, blocking), CUDA_SUCCESS);
  EXPECT_TRUE(goes_on(server, free));  // waited for the first record
  EXPECT_EQ(server.cu.cuEventQuery(event), CUDA_ERROR_NOT_READY);
  ASSERT_EQ(server.cu.cuStreamWaitEvent(free, event, 0), CUDA_SUCCESS);
  EXPECT_FALSE(goes_on(server, free));
}

TEST_F(Order, EventsHaveTheirDocumentedErrors) {
  float ms = 0;
  CUevent never = server.event();
  CUevent untimed = server.event(CU_EVENT_DISABLE_TIMING);
  CUevent first = server.recorded(free);
  EXPECT_EQ(server.cu.cuEventQuery(never), CUDA_SUCCESS);
  EXPECT_EQ(server.cu.cuEventSynchronize(never), CUDA_SUCCESS);
  EXPECT_EQ(server.cu.cuEventElapsedTime(&ms, first, never), CUDA_ERROR_INVALID_HANDLE);
  ASSERT_EQ(server.cu.cuEventRecord(untimed, free), CUDA_SUCCESS);
  EXPECT_EQ(server.cu.cuEventElapsedTime(&ms, first, untimed), CUDA_ERROR_INVALID_HANDLE);
  gate.close(free);
  CUevent late = server.recorded(free);
  EXPECT_EQ(server.cu.cuEventElapsedTime(&ms, first, late), CUDA_ERROR_NOT_READY);
  ASSERT_EQ(server.cu.cuEventDestroy(never), CUDA_SUCCESS);
  EXPECT_EQ(server.cu.cuEventDestroy(never), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(server.cu.cuEventQuery(never), CUDA_ERROR_INVALID_HANDLE);
  server.use(1);
  CUstream foreign = server.stream();
  EXPECT_EQ(server.cu.cuEventRecord(first, foreign), CUDA_ERROR_INVALID_HANDLE);
  ASSERT_EQ(server.cu.cuCtxSetCurrent(context), CUDA_SUCCESS);
}

TEST_F(Order, ConditionsOfWaitValues) {
  const auto wait64 = server.symbol<CUresult (*)(CUstream, CUdeviceptr, cuuint64_t, unsigned)>(
      "cuStreamWaitValue64_v2");
  const auto write64 = server.symbol<CUresult (*)(CUstream, CUdeviceptr, cuuint64_t, unsigned)>(
      "cuStreamWriteValue64_v2");
  struct Case {
    unsigned condition;
    uint32_t value;
    uint32_t no;
    uint32_t yes;
  };
  for (const Case& test :
       {Case{CU_STREAM_WAIT_VALUE_GEQ, 5, 4, 6},
        Case{CU_STREAM_WAIT_VALUE_GEQ, 0xfffffffe, 0xfffffff0, 3},  // cyclic
        Case{CU_STREAM_WAIT_VALUE_EQ, 5, 6, 5}, Case{CU_STREAM_WAIT_VALUE_AND, 6, 1, 2},
        Case{CU_STREAM_WAIT_VALUE_NOR, 0xf0, 0xffffff0f, 0}}) {
    CUdeviceptr word = server.device_memory(8);
    CUstream waiting = server.stream();
    CUstream writing = server.stream();
    ASSERT_EQ(server.cu.cuStreamWriteValue32(writing, word, test.no, 0), CUDA_SUCCESS);
    ASSERT_EQ(server.cu.cuStreamSynchronize(writing), CUDA_SUCCESS);
    ASSERT_EQ(server.cu.cuStreamWaitValue32(waiting, word, test.value, test.condition),
              CUDA_SUCCESS);
    EXPECT_FALSE(goes_on(server, waiting)) << test.condition;
    ASSERT_EQ(server.cu.cuStreamWriteValue32(writing, word, test.yes, 0), CUDA_SUCCESS);
    EXPECT_EQ(server.cu.cuStreamSynchronize(waiting), CUDA_SUCCESS) << test.condition;
    // In eight bytes the upper half counts.
    const uint64_t high = 7ull << 32;
    ASSERT_EQ(wait64(waiting, word, high, CU_STREAM_WAIT_VALUE_EQ), CUDA_SUCCESS);
    EXPECT_FALSE(goes_on(server, waiting));
    ASSERT_EQ(write64(writing, word, high, 0), CUDA_SUCCESS);
    EXPECT_EQ(server.cu.cuStreamSynchronize(waiting), CUDA_SUCCESS);
  }
  CUdeviceptr word = server.device_memory(8);
  EXPECT_EQ(server.cu.cuStreamWaitValue32(free, word + 2, 0, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(server.cu.cuStreamWaitValue32(free, word, 0, CU_STREAM_WAIT_VALUE_FLUSH),
            CUDA_ERROR_NOT_SUPPORTED);
  EXPECT_EQ(server.cu.cuStreamWaitValue32(free, 0, 0, 0), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(Order, ValuesWakeByCopiesAndMemsets) {
  CUdeviceptr word = server.device_memory(64);
  ASSERT_EQ(server.cu.cuMemsetD8(word, 0, 64), CUDA_SUCCESS);
  ASSERT_EQ(server.cu.cuCtxSynchronize(), CUDA_SUCCESS);
  ASSERT_EQ(server.cu.cuStreamWaitValue32(free, word + 32, 0x01010101, CU_STREAM_WAIT_VALUE_EQ),
            CUDA_SUCCESS);
  EXPECT_FALSE(goes_on(server, free));
  ASSERT_EQ(server.cu.cuMemsetD8Async(word, 1, 64, other), CUDA_SUCCESS);
  EXPECT_EQ(server.cu.cuStreamSynchronize(free), CUDA_SUCCESS);
}

TEST_F(Order, HostFunctionsRunInOrderAndMayTakeALock) {
  const auto launch = server.symbol<CUresult (*)(CUstream, CUhostFn, void*)>("cuLaunchHostFunc");
  struct State {
    Emulated* server;
    std::mutex mutex;
    std::atomic<int> runs{0};
    CUresult inside = CUDA_SUCCESS;
  } state{&server, {}, {}, CUDA_SUCCESS};
  const CUhostFn function = [](void* data) {
    auto& at = *static_cast<State*>(data);
    const std::lock_guard guard(at.mutex);
    CUdeviceptr memory = 0;
    at.inside = at.server->cu.cuMemAlloc(&memory, 4);
    ++at.runs;
  };
  {
    // The program may hold the lock while it makes calls, as long as it does not wait.
    const std::lock_guard guard(state.mutex);
    ASSERT_EQ(launch(free, function, &state), CUDA_SUCCESS);
    ASSERT_EQ(launch(free, function, &state), CUDA_SUCCESS);
    for (int i = 0; i < 100; ++i) EXPECT_EQ(server.cu.cuStreamQuery(free), CUDA_ERROR_NOT_READY);
    EXPECT_EQ(state.runs, 0);
  }
  EXPECT_EQ(server.cu.cuStreamSynchronize(free), CUDA_SUCCESS);
  EXPECT_EQ(state.runs, 2);
  EXPECT_EQ(state.inside, CUDA_ERROR_NOT_PERMITTED);
}

TEST_F(Order, ThreadsWorkAtTheSameTime) {
  std::vector<std::thread> threads;
  for (uint8_t number = 0; number < 6; ++number)
    threads.emplace_back([this, number] {
      server.use(number % 3);
      constexpr size_t kSize = 70'001;
      CUstream stream = server.stream(number % 2);
      uint8_t* host = server.pinned_memory(2 * kSize);
      const CUdeviceptr device = server.device_memory(kSize);
      for (uint8_t round = 1; round <= 40; ++round) {
        std::memset(host, number * 40 + round, kSize);
        EXPECT_EQ(server.cu.cuMemcpyHtoDAsync(device, host, kSize, stream), CUDA_SUCCESS);
        EXPECT_EQ(server.cu.cuMemcpyDtoHAsync(host + kSize, device, kSize, stream), CUDA_SUCCESS);
        EXPECT_EQ(server.cu.cuStreamSynchronize(stream), CUDA_SUCCESS);
        EXPECT_EQ(std::memcmp(host, host + kSize, kSize), 0);
      }
      EXPECT_EQ(server.cu.cuMemFree(device), CUDA_SUCCESS);
      EXPECT_EQ(server.cu.cuMemFreeHost(host), CUDA_SUCCESS);
    });
  for (std::thread& thread : threads) thread.join();
}

TEST_F(Order, APollingProgramTerminates) {
  constexpr size_t kSize = 1 << 20;
  uint8_t* host = server.pinned_memory(kSize);
  auto* arrived = reinterpret_cast<uint32_t*>(server.pinned_memory(4));
  CUdeviceptr device = server.device_memory(kSize);
  *arrived = 0;
  ASSERT_EQ(server.cu.cuMemsetD8Async(device, 0x77, kSize, blocking), CUDA_SUCCESS);
  ASSERT_EQ(server.cu.cuMemcpyDtoHAsync(host, device, kSize, blocking), CUDA_SUCCESS);
  ASSERT_EQ(server.cu.cuStreamWriteValue32(blocking, reinterpret_cast<CUdeviceptr>(arrived), 1, 0),
            CUDA_SUCCESS);
  const auto start = std::chrono::steady_clock::now();
  while (std::atomic_ref<uint32_t>(*arrived).load() == 0)
    ASSERT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(20));
  for (size_t i = 0; i < kSize; ++i) ASSERT_EQ(host[i], 0x77);
}

TEST_F(Order, APollingProgramCanOpenAGate) {
  auto* answer = reinterpret_cast<uint32_t*>(server.pinned_memory(4));
  *answer = 0;
  gate.close(free);
  ASSERT_EQ(server.cu.cuStreamWriteValue32(free, reinterpret_cast<CUdeviceptr>(answer), 3, 0),
            CUDA_SUCCESS);
  gate.open();
  const auto start = std::chrono::steady_clock::now();
  while (std::atomic_ref<uint32_t>(*answer).load() != 3) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    ASSERT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(20));
  }
}

}  // namespace
}  // namespace braid::emulator_test
