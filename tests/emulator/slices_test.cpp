// Kernels of several contexts on one GPU: each has it for a part of the time.
#include "gate.h"
#include "own_kernels.h"

namespace braid::emulator_test {
namespace {

constexpr size_t kSize = 16u << 20;
constexpr unsigned kBlocks = 4;  // enough for all that SMs can read

// A context of GPU 0 in which kernels read host memory and others spin.
struct Tenant {
  Tenant(Emulated& from, CUcontext in) : server(from), context(in), gate(from) {
    move = own_kernel(server, "move");
    spin = own_kernel(server, "spin");
    memory = server.device_memory(kSize);
    stream = server.stream();
    copies = server.stream();
    spins = server.stream();
  }
  void use() const { EXPECT_EQ(server.cu.cuCtxSetCurrent(context), CUDA_SUCCESS); }
  void start_moving(uint64_t host) {
    start = server.recorded(stream);
    EXPECT_EQ(launch_own(server, move, MoveArgs{host, memory, kSize, 1 << 20}, stream, kBlocks),
              CUDA_SUCCESS);
    end = server.recorded(stream);
  }
  double rate() {
    EXPECT_EQ(server.cu.cuStreamSynchronize(stream), CUDA_SUCCESS);
    return gbps(kBlocks * kSize, server.elapsed_us(start, end));
  }
  void start_spinning(unsigned blocks = 1) {
    const SpinArgs args{reinterpret_cast<uint64_t>(gate.word())};
    EXPECT_EQ(launch_own(server, spin, args, spins, blocks, 1024), CUDA_SUCCESS);
  }
  void stop_spinning() {
    gate.open();
    EXPECT_EQ(server.cu.cuStreamSynchronize(spins), CUDA_SUCCESS);
  }

  Emulated& server;
  CUcontext context;
  Gate gate;
  CUfunction move = nullptr;
  CUfunction spin = nullptr;
  CUdeviceptr memory = 0;
  CUstream stream = nullptr;
  CUstream copies = nullptr;
  CUstream spins = nullptr;
  CUevent start = nullptr;
  CUevent end = nullptr;
};

struct Slices : testing::Test {
  // Alone, and all that follows compares with it.
  double rate_of(Tenant& tenant) {
    tenant.use();
    tenant.start_moving(host);
    return tenant.rate();
  }

  Emulated server;
  Tenant first{server, server.use(0)};
  Tenant second{server, new_context(server, 0)};
  uint64_t host = reinterpret_cast<uint64_t>(server.pinned_memory(kSize));
};

TEST_F(Slices, AKernelThatSpinsCostsOtherContextsHalf) {
  const double alone = rate_of(first);
  EXPECT_NEAR(alone, 51, 1);
  second.use();
  second.start_spinning();
  EXPECT_NEAR(rate_of(first), alone / 2, 0.5);
  second.use();
  second.stop_spinning();
  EXPECT_NEAR(rate_of(first), alone, 0.01);
}

TEST_F(Slices, AKernelOfTheSameContextCostsNothing) {
  const double alone = rate_of(first);
  first.start_spinning();
  EXPECT_NEAR(rate_of(first), alone, 0.01);
  first.stop_spinning();
}

TEST_F(Slices, OfAnotherGpuAreNotTaken) {
  const double alone = rate_of(first);
  Tenant elsewhere(server, new_context(server, 1));
  elsewhere.start_spinning();
  EXPECT_NEAR(rate_of(first), alone, 0.01);
  elsewhere.use();
  elsewhere.stop_spinning();
}

TEST_F(Slices, BothGetHalf) {
  const double alone = rate_of(first);
  first.use();
  first.start_moving(host);
  second.use();
  second.start_moving(host);
  EXPECT_NEAR(second.rate(), alone / 2, 0.5);
  first.use();
  EXPECT_NEAR(first.rate(), alone / 2, 0.5);
}

TEST_F(Slices, AThirdContextLeavesAThird) {
  const double alone = rate_of(first);
  Tenant third(server, new_context(server, 0));
  third.start_spinning();
  second.use();
  second.start_spinning();
  EXPECT_NEAR(rate_of(first), alone / 3, 0.5);
  second.use();
  second.stop_spinning();
  third.use();
  third.stop_spinning();
}

// In its turn a context has all multiprocessors.
TEST_F(Slices, AContextThatFillsTheGpuLeavesRoomForOthers) {
  const double alone = rate_of(first);
  second.use();
  second.start_spinning(132 * 2 + 1);
  EXPECT_NEAR(rate_of(first), alone / 2, 0.5);
  second.use();
  second.stop_spinning();
}

TEST_F(Slices, CopyEnginesNeedNone) {
  const auto rate_of_copy = [&] {
    first.use();
    const CUevent start = server.recorded(first.copies);
    EXPECT_EQ(server.cu.cuMemcpyHtoDAsync(first.memory, reinterpret_cast<void*>(host), kSize,
                                          first.copies),
              CUDA_SUCCESS);
    const CUevent end = server.recorded(first.copies);
    EXPECT_EQ(server.cu.cuStreamSynchronize(first.copies), CUDA_SUCCESS);
    return gbps(kSize, server.elapsed_us(start, end));
  };
  const double alone = rate_of_copy();
  second.use();
  second.start_spinning();
  first.use();
  first.start_spinning();
  EXPECT_NEAR(rate_of_copy(), alone, 0.01);
  first.stop_spinning();
  second.use();
  second.stop_spinning();
}

// A context that is destroyed while its kernel spins leaves the GPU to the other.
TEST_F(Slices, GoWithTheirContext) {
  const double alone = rate_of(first);
  const auto reset = server.symbol<CUresult (*)(CUdevice)>("cuDevicePrimaryCtxReset_v2");
  const CUcontext on_gpu_1 = server.use(1);
  uint8_t* lasting = server.pinned_memory(kSize);
  ASSERT_NE(on_gpu_1, nullptr);
  first.use();
  first.start_spinning();
  EXPECT_EQ(reset(0), CUDA_SUCCESS);
  host = reinterpret_cast<uint64_t>(lasting);
  EXPECT_NEAR(rate_of(second), alone, 0.5);
}

}  // namespace
}  // namespace braid::emulator_test
