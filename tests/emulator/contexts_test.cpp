// Several contexts on one GPU, and what engines need beside copies: batches of values, kernels with
// a priority of their own.
#include <thread>

#include "gate.h"
#include "memory_calls.h"
#include "own_kernels.h"

namespace braid::emulator_test {
namespace {

using BatchMemOp = CUresult (*)(CUstream, unsigned, CUstreamBatchMemOpParams*, unsigned);

CUstreamBatchMemOpParams wait_of(uint64_t address, uint32_t value) {
  CUstreamBatchMemOpParams op{};
  op.waitValue = {CU_STREAM_MEM_OP_WAIT_VALUE_32, address, {value}, CU_STREAM_WAIT_VALUE_GEQ, 0};
  return op;
}
CUstreamBatchMemOpParams write_of(uint64_t address, uint32_t value) {
  CUstreamBatchMemOpParams op{};
  op.writeValue = {CU_STREAM_MEM_OP_WRITE_VALUE_32, address, {value}, 0, 0};
  return op;
}

TEST(BatchOfValues, RunsInItsOrder) {
  Emulated server;
  server.use(0);
  const auto batch = server.symbol<BatchMemOp>("cuStreamBatchMemOp_v2");
  auto* words = reinterpret_cast<uint32_t*>(server.pinned_memory(64));
  const auto at = [&](int i) { return reinterpret_cast<uint64_t>(words + i); };
  std::fill(words, words + 4, 0);
  const CUstream stream = server.stream();
  CUstreamBatchMemOpParams ops[] = {write_of(at(1), 5), wait_of(at(0), 1), write_of(at(2), 6)};
  ASSERT_EQ(batch(stream, 3, ops, 0), CUDA_SUCCESS);
  for (int i = 0; i < 2000; ++i) EXPECT_EQ(server.cu.cuStreamQuery(stream), CUDA_ERROR_NOT_READY);
  EXPECT_EQ(words[1], 5u);
  EXPECT_EQ(words[2], 0u) << "behind the wait";
  std::atomic_ref(words[0]).store(1);
  ASSERT_EQ(server.cu.cuStreamSynchronize(stream), CUDA_SUCCESS);
  EXPECT_EQ(words[2], 6u);
}

TEST(BatchOfValues, OneWrongValueEnqueuesNone) {
  Emulated server;
  server.use(0);
  const auto batch = server.symbol<BatchMemOp>("cuStreamBatchMemOp_v2");
  auto* word = reinterpret_cast<uint32_t*>(server.pinned_memory(64));
  *word = 0;
  const CUstream stream = server.stream();
  CUstreamBatchMemOpParams ops[] = {write_of(reinterpret_cast<uint64_t>(word), 5), write_of(2, 1)};
  EXPECT_EQ(batch(stream, 2, ops, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(batch(stream, 0, ops, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(batch(stream, 1, nullptr, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(batch(stream, 1, ops, 1), CUDA_ERROR_INVALID_VALUE);
  ASSERT_EQ(server.cu.cuStreamSynchronize(stream), CUDA_SUCCESS);
  EXPECT_EQ(*word, 0u);
}

// A GPU full of blocks that spin, and a launch with each of two priorities behind them.
struct Priorities : testing::Test {
  using LaunchEx = CUresult (*)(const CUlaunchConfig*, CUfunction, void**, void**);
  static constexpr unsigned kThreads = 1024;

  CUresult launch(int number, CUlaunchAttribute* attributes, unsigned count) {
    StampArgs args{address(1), address(2 + number)};
    void* parameters[] = {&args};
    CUlaunchConfig config{1, 1, 1, kThreads, 1, 1, 0, streams[number], attributes, count};
    return launch_ex(&config, stamp, parameters, nullptr);
  }
  uint64_t address(int word) const { return reinterpret_cast<uint64_t>(words + word); }
  static CUlaunchAttribute priority(int value) {
    CUlaunchAttribute attribute{};
    attribute.id = CU_LAUNCH_ATTRIBUTE_PRIORITY;
    attribute.value.priority = value;
    return attribute;
  }
  void fill_gpu() {
    const unsigned blocks = 132 * 2048 / kThreads;
    ASSERT_EQ(launch_own(server, spin, SpinArgs{address(0)}, server.stream(), blocks, kThreads),
              CUDA_SUCCESS);
  }
  void open() {
    std::atomic_ref(words[0]).store(1);
    ASSERT_EQ(server.cu.cuCtxSynchronize(), CUDA_SUCCESS);
  }

  Emulated server;
  CUcontext context = server.use(0);
  LaunchEx launch_ex = server.symbol<LaunchEx>("cuLaunchKernelEx");
  CUfunction spin = own_kernel(server, "spin");
  CUfunction stamp = own_kernel(server, "stamp");
  CUstream streams[2] = {server.stream(), server.stream()};
  uint32_t* words = reinterpret_cast<uint32_t*>(server.pinned_memory(64));

  void SetUp() override { std::fill(words, words + 4, 0); }
};

TEST_F(Priorities, OfALaunchDecideWhoIsPlacedFirst) {
  fill_gpu();
  CUlaunchAttribute high = priority(-5);
  ASSERT_EQ(launch(0, nullptr, 0), CUDA_SUCCESS);
  ASSERT_EQ(launch(1, &high, 1), CUDA_SUCCESS);
  open();
  EXPECT_EQ(words[2], 1u);
  EXPECT_EQ(words[3], 0u) << "launched later, placed first";
}

TEST_F(Priorities, EqualOnesAreServedInTheirOrder) {
  fill_gpu();
  CUlaunchAttribute equal = priority(0);
  ASSERT_EQ(launch(0, nullptr, 0), CUDA_SUCCESS);
  ASSERT_EQ(launch(1, &equal, 1), CUDA_SUCCESS);
  open();
  EXPECT_EQ(words[2], 0u);
  EXPECT_EQ(words[3], 1u);
}

TEST_F(Priorities, AttributesThatTwinsCannotGiveAreRefused) {
  CUlaunchAttribute attributes[2] = {priority(0), {}};
  attributes[1].id = CU_LAUNCH_ATTRIBUTE_COOPERATIVE;
  attributes[1].value.cooperative = 1;
  EXPECT_EQ(launch(0, attributes, 2), CUDA_ERROR_NOT_SUPPORTED);
  attributes[1].value.cooperative = 0;
  EXPECT_EQ(launch(0, attributes, 2), CUDA_SUCCESS);
  EXPECT_EQ(launch(0, nullptr, 1), CUDA_ERROR_INVALID_VALUE);
  attributes[1].id = static_cast<CUlaunchAttributeID>(99);
  EXPECT_EQ(launch(0, attributes, 2), CUDA_ERROR_INVALID_VALUE);
  open();
}

// What GPU 0 has left.
double free_mib(Emulated& server) {
  size_t free = 0;
  size_t total = 0;
  EXPECT_EQ(server.cu.cuMemGetInfo(&free, &total), CUDA_SUCCESS);
  return static_cast<double>(free) / (1 << 20);
}

TEST(ContextMemory, IsTakenAndGivenBack) {
  Emulated server;
  server.use(0);
  const auto destroy = server.symbol<CUresult (*)(CUcontext)>("cuCtxDestroy_v2");
  const double before = free_mib(server);
  const CUcontext made = new_context(server, 0);
  EXPECT_NEAR(before - free_mib(server), 523.6, 0.1);
  ASSERT_EQ(destroy(made), CUDA_SUCCESS);
  EXPECT_EQ(free_mib(server), before);
}

TEST(ContextMemory, DependsOnTheSizeOfStacks) {
  Emulated server;
  server.use(0);
  const auto destroy = server.symbol<CUresult (*)(CUcontext)>("cuCtxDestroy_v2");
  const auto set = server.symbol<CUresult (*)(CUlimit, size_t)>("cuCtxSetLimit");
  const auto get = server.symbol<CUresult (*)(size_t*, CUlimit)>("cuCtxGetLimit");
  const double before = free_mib(server);
  const CUcontext made = new_context(server, 0);
  size_t stack_bytes = 0;
  ASSERT_EQ(get(&stack_bytes, CU_LIMIT_STACK_SIZE), CUDA_SUCCESS);
  EXPECT_EQ(stack_bytes, 1024u);
  ASSERT_EQ(set(CU_LIMIT_STACK_SIZE, 16), CUDA_SUCCESS);
  EXPECT_NEAR(before - free_mib(server), 263.7, 0.1);
  ASSERT_EQ(set(CU_LIMIT_STACK_SIZE, 2048), CUDA_SUCCESS);
  EXPECT_NEAR(before - free_mib(server), 523.6 + 264, 0.1);
  EXPECT_EQ(set(CU_LIMIT_STACK_SIZE, 1 << 20), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(set(CU_LIMIT_STACK_SIZE, 512 << 10), CUDA_SUCCESS) << "132 GiB fit once";
  const CUcontext second = new_context(server, 0);
  EXPECT_EQ(set(CU_LIMIT_STACK_SIZE, 512 << 10), CUDA_ERROR_OUT_OF_MEMORY);
  ASSERT_EQ(get(&stack_bytes, CU_LIMIT_STACK_SIZE), CUDA_SUCCESS);
  EXPECT_EQ(stack_bytes, 1024u) << "of this context, unchanged";
  ASSERT_EQ(destroy(second), CUDA_SUCCESS);
  ASSERT_EQ(destroy(made), CUDA_SUCCESS);
  EXPECT_EQ(free_mib(server), before);
}

TEST(Contexts, StreamsOfOtherContextsTakeWork) {
  Emulated server;
  const CUcontext first = server.use(0);
  const CUcontext second = new_context(server, 0);
  const CUcontext third = new_context(server, 1);
  ASSERT_NE(first, second);
  const CUfunction stamp = own_kernel(server, "stamp");
  const CUstream stream = server.stream();
  const CUdeviceptr memory = server.device_memory(64);
  ASSERT_EQ(server.cu.cuCtxSetCurrent(first), CUDA_SUCCESS);
  auto* words = reinterpret_cast<uint32_t*>(server.pinned_memory(64));
  std::fill(words, words + 2, 7);
  std::fill(words + 2, words + 4, 0);
  const uint64_t address = reinterpret_cast<uint64_t>(words);
  ASSERT_EQ(server.cu.cuMemcpyHtoDAsync(memory, words, 8, stream), CUDA_SUCCESS);
  ASSERT_EQ(launch_own(server, stamp, StampArgs{memory, address + 8}, stream), CUDA_SUCCESS);
  ASSERT_EQ(server.cu.cuStreamSynchronize(stream), CUDA_SUCCESS);
  EXPECT_EQ(words[2], 7u) << "another context's kernel reached pinned memory";
  const CUstream here = server.stream();
  EXPECT_EQ(launch_own(server, stamp, StampArgs{memory, address + 8}, here),
            CUDA_ERROR_INVALID_HANDLE)
      << "a kernel of another context";

  // Peer access from the third to the first, and not to the second.
  const CUdeviceptr ours = server.device_memory(64);
  ASSERT_EQ(server.cu.cuMemcpyHtoD(ours, words, 8), CUDA_SUCCESS);
  ASSERT_EQ(server.cu.cuCtxSetCurrent(third), CUDA_SUCCESS);
  EXPECT_EQ(server.cu.cuCtxEnablePeerAccess(first, 0), CUDA_SUCCESS);
  EXPECT_EQ(server.cu.cuCtxEnablePeerAccess(first, 0), CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED);
  const CUfunction stamp_of_third = own_kernel(server, "stamp");
  const CUstream of_third = server.stream();
  ASSERT_EQ(launch_own(server, stamp_of_third, StampArgs{ours, address + 12}, of_third),
            CUDA_SUCCESS);
  ASSERT_EQ(server.cu.cuStreamSynchronize(of_third), CUDA_SUCCESS);
  EXPECT_EQ(words[3], 7u);
}

TEST(Contexts, OtherContextsKernelsNeedPeerAccess) {
  Emulated server("h200x4", kFaultsStay);
  server.use(0);
  const CUdeviceptr memory = server.device_memory(64);
  new_context(server, 1);
  const CUfunction stamp = own_kernel(server, "stamp");
  const CUstream stream = server.stream();
  ASSERT_EQ(launch_own(server, stamp, StampArgs{memory, memory + 4}, stream), CUDA_SUCCESS);
  EXPECT_EQ(server.cu.cuStreamSynchronize(stream), CUDA_ERROR_ILLEGAL_ADDRESS);
}

}  // namespace
}  // namespace braid::emulator_test
