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

}  // namespace
}  // namespace braid::emulator_test
