// Graphs: what streams recorded runs when the graph is launched, as often as it is launched.
#include <cstring>
#include <functional>

#include "fixture.h"

namespace braid::emulator_test {
namespace {

struct Graph : testing::Test {
  static constexpr size_t kSize = 1 << 20;

  Emulated server;
  CUcontext context = server.use(0);
  CUstream stream = server.stream();
  CUdeviceptr device = server.device_memory(kSize);
  uint8_t* from = server.pinned_memory(kSize);
  uint8_t* to = server.pinned_memory(kSize);
  CUgraph graph = nullptr;
  CUgraphExec exec = nullptr;

  void begin() {
    const auto call =
        server.symbol<CUresult (*)(CUstream, CUstreamCaptureMode)>("cuStreamBeginCapture_v2");
    ASSERT_EQ(call(stream, CU_STREAM_CAPTURE_MODE_GLOBAL), CUDA_SUCCESS);
  }
  CUresult end() {
    return server.symbol<CUresult (*)(CUstream, CUgraph*)>("cuStreamEndCapture")(stream, &graph);
  }
  void instantiate() {
    const auto call = server.symbol<CUresult (*)(CUgraphExec*, CUgraph, unsigned long long)>(
        "cuGraphInstantiateWithFlags");
    ASSERT_EQ(end(), CUDA_SUCCESS);
    ASSERT_EQ(call(&exec, graph, 0), CUDA_SUCCESS);
  }
  CUresult launch(CUstream into) {
    return server.symbol<CUresult (*)(CUgraphExec, CUstream)>("cuGraphLaunch")(exec, into);
  }
  // `second` goes on after what `first` has recorded or run so far.
  void follow(CUstream second, CUstream first) {
    ASSERT_EQ(server.cu.cuStreamWaitEvent(second, server.recorded(first), 0), CUDA_SUCCESS);
  }
  void up(CUstream into, size_t size = kSize) {
    ASSERT_EQ(server.cu.cuMemcpyHtoDAsync(device, from, size, into), CUDA_SUCCESS);
  }
  void down(CUstream into, size_t size = kSize) {
    ASSERT_EQ(server.cu.cuMemcpyDtoHAsync(to, device, size, into), CUDA_SUCCESS);
  }
};

TEST_F(Graph, EveryLaunchRunsItWithTheBytesOfThatMoment) {
  begin();
  up(stream);
  down(stream);
  instantiate();
  std::memset(to, 0, kSize);
  for (uint64_t run = 0; run < 5; ++run) {
    const std::vector<uint8_t> bytes = random_bytes(kSize, run);
    std::memcpy(from, bytes.data(), kSize);
    ASSERT_NE(std::memcmp(to, bytes.data(), kSize), 0);
    ASSERT_EQ(launch(stream), CUDA_SUCCESS);
    ASSERT_EQ(server.cu.cuStreamSynchronize(stream), CUDA_SUCCESS);
    ASSERT_EQ(std::memcmp(to, bytes.data(), kSize), 0) << run;
  }
}

TEST_F(Graph, LaunchesKeepTheOrderOfTheirStream) {
  begin();
  down(stream);
  instantiate();
  // Before and after the launch, the same stream writes the memory that the graph reads.
  ASSERT_EQ(server.cu.cuMemsetD8Async(device, 1, kSize, stream), CUDA_SUCCESS);
  ASSERT_EQ(launch(stream), CUDA_SUCCESS);
  ASSERT_EQ(server.cu.cuMemsetD8Async(device, 2, kSize, stream), CUDA_SUCCESS);
  ASSERT_EQ(server.cu.cuStreamSynchronize(stream), CUDA_SUCCESS);
  EXPECT_EQ(std::count(to, to + kSize, 1), static_cast<long>(kSize));
}

TEST_F(Graph, JoinedStreamsRunBesideEachOtherAndInTheirOrder) {
  CUstream other = server.stream();
  uint8_t* beside = server.pinned_memory(kSize);
  CUdeviceptr source = server.device_memory(kSize);
  ASSERT_EQ(server.cu.cuMemsetD8(source, 9, kSize), CUDA_SUCCESS);
  begin();
  follow(other, stream);
  up(stream);
  ASSERT_EQ(server.cu.cuMemcpyDtoHAsync(beside, source, kSize, other), CUDA_SUCCESS);
  follow(stream, other);
  down(stream);
  instantiate();
  std::memset(from, 7, kSize);
  const auto time = [&](const std::function<void()>& work) {
    CUevent before = server.recorded(stream);
    work();
    CUevent after = server.recorded(stream);
    EXPECT_EQ(server.cu.cuStreamSynchronize(stream), CUDA_SUCCESS);
    return server.elapsed_us(before, after);
  };
  const double graph_us = time([&] { EXPECT_EQ(launch(stream), CUDA_SUCCESS); });
  EXPECT_EQ(std::count(to, to + kSize, 7), static_cast<long>(kSize));
  EXPECT_EQ(std::count(beside, beside + kSize, 9), static_cast<long>(kSize));
  const double one_us = time([&] { up(stream); });
  EXPECT_GT(graph_us, 1.5 * one_us);  // two after each other,
  EXPECT_LT(graph_us, 2.6 * one_us);  // and the third beside the first
}

TEST_F(Graph, LaunchesOfOneExecutableDoNotOverlap) {
  CUstream other = server.stream();
  begin();
  up(stream);
  instantiate();
  CUevent before = server.recorded(stream);
  ASSERT_EQ(launch(stream), CUDA_SUCCESS);
  ASSERT_EQ(launch(other), CUDA_SUCCESS);
  CUevent first = server.recorded(stream);
  CUevent second = server.recorded(other);
  ASSERT_EQ(server.cu.cuCtxSynchronize(), CUDA_SUCCESS);
  EXPECT_GT(server.elapsed_us(before, second), 1.8 * server.elapsed_us(before, first));
}

TEST_F(Graph, HostFunctionsFillsAndValuesAreNodes) {
  static int calls = 0;
  calls = 0;
  CUdeviceptr word = server.device_memory(4);
  ASSERT_EQ(server.cu.cuMemsetD8(word, 0, 4), CUDA_SUCCESS);
  begin();
  const auto host_function =
      server.symbol<CUresult (*)(CUstream, CUhostFn, void*)>("cuLaunchHostFunc");
  ASSERT_EQ(server.cu.cuMemsetD8Async(device, 5, kSize, stream), CUDA_SUCCESS);
  ASSERT_EQ(host_function(
                stream, [](void* count) { ++*static_cast<int*>(count); }, &calls),
            CUDA_SUCCESS);
  ASSERT_EQ(server.cu.cuStreamWriteValue32(stream, word, 3, 0), CUDA_SUCCESS);
  instantiate();
  size_t nodes = 0;
  const auto get_nodes =
      server.symbol<CUresult (*)(CUgraph, CUgraphNode*, size_t*)>("cuGraphGetNodes");
  ASSERT_EQ(get_nodes(graph, nullptr, &nodes), CUDA_SUCCESS);
  EXPECT_EQ(nodes, 3u);
  EXPECT_EQ(calls, 0);
  ASSERT_EQ(launch(stream), CUDA_SUCCESS);
  ASSERT_EQ(launch(stream), CUDA_SUCCESS);
  ASSERT_EQ(server.cu.cuStreamSynchronize(stream), CUDA_SUCCESS);
  EXPECT_EQ(calls, 2);
  uint32_t value = 0;
  ASSERT_EQ(server.cu.cuMemcpyDtoH(&value, word, 4), CUDA_SUCCESS);
  EXPECT_EQ(value, 3u);
}

TEST_F(Graph, AnExecutableOutlivesItsGraph) {
  begin();
  up(stream);
  down(stream);
  instantiate();
  ASSERT_EQ(server.symbol<CUresult (*)(CUgraph)>("cuGraphDestroy")(graph), CUDA_SUCCESS);
  std::memset(from, 4, kSize);
  ASSERT_EQ(launch(stream), CUDA_SUCCESS);
  const auto destroy = server.symbol<CUresult (*)(CUgraphExec)>("cuGraphExecDestroy");
  ASSERT_EQ(destroy(exec), CUDA_SUCCESS);
  EXPECT_EQ(launch(stream), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(destroy(exec), CUDA_ERROR_INVALID_VALUE);
  ASSERT_EQ(server.cu.cuStreamSynchronize(stream), CUDA_SUCCESS);
  EXPECT_EQ(std::count(to, to + kSize, 4), static_cast<long>(kSize));
}

TEST_F(Graph, AStreamThatIsNotJoinedBackSpoilsTheCapture) {
  CUstream other = server.stream();
  begin();
  up(stream);
  follow(other, stream);
  down(other);
  CUevent captured = server.recorded(other);
  EXPECT_EQ(end(), CUDA_ERROR_STREAM_CAPTURE_UNJOINED);
  EXPECT_EQ(graph, nullptr);
  // Nobody can join a capture that is over.
  EXPECT_EQ(server.cu.cuStreamWaitEvent(stream, captured, 0), CUDA_ERROR_CAPTURED_EVENT);
  EXPECT_EQ(server.cu.cuStreamQuery(stream), CUDA_SUCCESS);
}

// As measured on 2xH200 (model/capture_rules.h): the recording thread itself, in a stream beside
// it.
TEST_F(Graph, WhatIsUnsafeBesideARecordingSpoilsIt) {
  using Call = std::function<CUresult()>;
  CUstream beside = server.stream();
  CUevent event = server.recorded(beside);
  CUmemoryPool pool = nullptr;
  ASSERT_EQ(
      server.symbol<CUresult (*)(CUmemoryPool*, CUdevice)>("cuDeviceGetDefaultMemPool")(&pool, 0),
      CUDA_SUCCESS);
  const auto get_access =
      server.symbol<CUresult (*)(CUmemAccess_flags*, CUmemoryPool, CUmemLocation*)>(
          "cuMemPoolGetAccess");
  const auto allocate_async =
      server.symbol<CUresult (*)(CUdeviceptr*, size_t, CUstream)>("cuMemAllocAsync");
  CUmemLocation location{};
  location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  CUmemAccess_flags access{};
  CUdeviceptr made = 0;
  void* host = nullptr;
  const std::vector<Call> unsafe = {
      [&] { return get_access(&access, pool, &location); },
      [&] { return server.cu.cuStreamQuery(beside); },
      [&] { return server.cu.cuStreamSynchronize(beside); },
      [&] { return server.cu.cuEventQuery(event); },
      [&] { return server.cu.cuCtxSynchronize(); },
      [&] { return server.cu.cuMemAlloc(&made, kSize); },
      [&] { return server.cu.cuMemHostAlloc(&host, kSize, 0); },
      [&] { return allocate_async(&made, kSize, beside); },
  };
  for (size_t i = 0; i < unsafe.size(); ++i) {
    begin();
    EXPECT_EQ(unsafe[i](), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED) << i;
    EXPECT_EQ(end(), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED) << i;
  }
  const std::vector<Call> safe = {
      [&] { return server.cu.cuMemcpyHtoD(device, from, kSize); },
      [&] { return server.cu.cuMemcpyHtoDAsync(device, from, kSize, beside); },
      [&] { return server.cu.cuMemsetD8(device, 0, kSize); },
      [&] { return server.cu.cuEventRecord(event, beside); },
      [&] { return server.cu.cuStreamCreate(&beside, CU_STREAM_NON_BLOCKING); },
  };
  for (size_t i = 0; i < safe.size(); ++i) {
    begin();
    EXPECT_EQ(safe[i](), CUDA_SUCCESS) << i;
    EXPECT_EQ(end(), CUDA_SUCCESS) << i;
  }
}

TEST_F(Graph, PageableMemoryIsReadWhenTheGraphIsLaunched) {
  std::vector<uint8_t> pageable(kSize, 1);
  begin();
  ASSERT_EQ(server.cu.cuMemcpyHtoDAsync(device, pageable.data(), kSize, stream), CUDA_SUCCESS);
  down(stream);
  instantiate();
  std::fill(pageable.begin(), pageable.end(), 8);
  ASSERT_EQ(launch(stream), CUDA_SUCCESS);
  ASSERT_EQ(server.cu.cuStreamSynchronize(stream), CUDA_SUCCESS);
  EXPECT_EQ(std::count(to, to + kSize, 8), static_cast<long>(kSize));
}

TEST_F(Graph, RowsOfPageableMemoryAreReadByEveryLaunch) {
  constexpr size_t kPitch = 4096;
  constexpr size_t kWidth = 1000;
  constexpr size_t kRows = kSize / kPitch;
  std::vector<uint8_t> pageable(kSize);
  CUDA_MEMCPY2D rows{};
  rows.srcMemoryType = CU_MEMORYTYPE_HOST;
  rows.srcHost = pageable.data();
  rows.srcPitch = kPitch;
  rows.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  rows.dstDevice = device;
  rows.dstPitch = kPitch;
  rows.WidthInBytes = kWidth;
  rows.Height = kRows;
  const auto copy =
      server.symbol<CUresult (*)(const CUDA_MEMCPY2D*, CUstream)>("cuMemcpy2DAsync_v2");
  ASSERT_EQ(server.cu.cuMemsetD8(device, 0, kSize), CUDA_SUCCESS);
  begin();
  ASSERT_EQ(copy(&rows, stream), CUDA_SUCCESS);
  down(stream);
  instantiate();
  for (uint64_t run = 0; run < 3; ++run) {
    const std::vector<uint8_t> bytes = random_bytes(kSize, run);
    std::memcpy(pageable.data(), bytes.data(), kSize);  // where the graph reads
    rows.srcHost = nullptr;                             // the graph has the call's own arguments
    ASSERT_EQ(launch(stream), CUDA_SUCCESS);
    ASSERT_EQ(server.cu.cuStreamSynchronize(stream), CUDA_SUCCESS);
    std::vector<uint8_t> expected(kSize, 0);
    for (size_t row = 0; row < kRows; ++row)
      std::memcpy(&expected[row * kPitch], &pageable[row * kPitch], kWidth);
    EXPECT_EQ(std::memcmp(to, expected.data(), kSize), 0) << run;
  }
}

}  // namespace
}  // namespace braid::emulator_test
