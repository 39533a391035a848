// Whose PCIe link a copy between host memory and a GPU uses. GPU 0's link has a tenth of its
// bandwidth, so the time says it.
#include "memory_calls.h"
#include "own_kernels.h"

namespace braid::emulator_test {
namespace {

constexpr size_t kSize = 64u << 20;
constexpr int kSlow = 0;
constexpr int kFast = 1;

struct Route : testing::Test {
  // Memory of a GPU that both may touch, mapped and from a pool.
  CUdeviceptr mapped(CUmemLocation where) {
    CUmemAllocationProp wanted{};
    wanted.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    wanted.location = where;
    CUmemGenericAllocationHandle handle = 0;
    CUdeviceptr address = 0;
    const CUmemAccessDesc both[] = {access_by(kSlow), access_by(kFast)};
    EXPECT_EQ(memory.create(&handle, kSize, &wanted, 0), CUDA_SUCCESS);
    EXPECT_EQ(memory.reserve(&address, kSize, 0, 0, 0), CUDA_SUCCESS);
    EXPECT_EQ(memory.map(address, kSize, 0, handle, 0), CUDA_SUCCESS);
    EXPECT_EQ(memory.set_access(address, kSize, both, 2), CUDA_SUCCESS);
    return address;
  }
  CUdeviceptr pooled(int gpu) {
    const CUmemAccessDesc both[] = {access_by(kSlow), access_by(kFast)};
    EXPECT_EQ(pools.set_access(pools.default_pool(gpu), both, 2), CUDA_SUCCESS);
    server.use(gpu);
    const CUstream stream = server.stream();
    const CUdeviceptr address = pools.allocated(kSize, stream);
    EXPECT_EQ(server.cu.cuStreamSynchronize(stream), CUDA_SUCCESS);
    return address;
  }
  CUdeviceptr plain(int gpu) {
    server.use(gpu);
    return server.device_memory(kSize);
  }

  // GB/s of a copy in a stream of the current context.
  double rate(CUdeviceptr to, CUdeviceptr from) {
    const CUstream stream = server.stream();
    const CUevent start = server.recorded(stream);
    EXPECT_EQ(server.cu.cuMemcpyAsync(to, from, kSize, stream), CUDA_SUCCESS);
    const CUevent end = server.recorded(stream);
    EXPECT_EQ(server.cu.cuStreamSynchronize(stream), CUDA_SUCCESS);
    return gbps(kSize, server.elapsed_us(start, end));
  }
  // The GPU whose link both directions use, in a stream of `by`'s context.
  int link_of(CUdeviceptr device, CUdeviceptr host_end, int by) {
    server.use(by);
    const double down = rate(device, host_end);
    const double up = rate(host_end, device);
    EXPECT_EQ(down < 10, up < 10);
    EXPECT_TRUE(down > 50 || down < 6) << down;
    return down < 10 ? kSlow : kFast;
  }

  Emulated server{"h200x4",
                  R"({"links": [{"ends": ["numa0", "gpu0"], "factor": 0.1, "from_us": 0}]})"};
  MemoryCalls memory{server};
  PoolCalls pools{server};
  CUcontext contexts[2] = {server.use(kSlow), server.use(kFast)};
  CUdeviceptr host = reinterpret_cast<CUdeviceptr>(server.pinned_memory(kSize));
};

TEST_F(Route, PlainMemoryIsReachedByItsOwnGpu) {
  for (const int gpu : {kSlow, kFast}) {
    const CUdeviceptr device = plain(gpu);
    for (const int by : {kSlow, kFast}) EXPECT_EQ(link_of(device, host, by), gpu);
  }
}

TEST_F(Route, PlainMemoryOfAContextBesideThePrimaryToo) {
  const CUcontext other = new_context(server, kFast);
  ASSERT_NE(other, contexts[kFast]);
  const CUdeviceptr device = server.device_memory(kSize);
  EXPECT_EQ(link_of(device, host, kSlow), kFast);
}

TEST_F(Route, MappedMemoryIsReachedByTheStreamsGpu) {
  for (const int gpu : {kSlow, kFast}) {
    const CUdeviceptr device = mapped(on_gpu(gpu));
    for (const int by : {kSlow, kFast}) EXPECT_EQ(link_of(device, host, by), by);
  }
}

TEST_F(Route, PooledMemoryIsReachedByTheStreamsGpu) {
  for (const int gpu : {kSlow, kFast}) {
    const CUdeviceptr device = pooled(gpu);
    for (const int by : {kSlow, kFast}) EXPECT_EQ(link_of(device, host, by), by);
  }
}

TEST_F(Route, MappedHostMemoryChangesNothing) {
  CUmemLocation on_host{};
  on_host.type = CU_MEM_LOCATION_TYPE_HOST_NUMA;
  const CUdeviceptr host_mapped = mapped(on_host);
  const CUdeviceptr device = mapped(on_gpu(kFast));
  const CUdeviceptr own = plain(kFast);
  for (const int by : {kSlow, kFast}) {
    EXPECT_EQ(link_of(device, host_mapped, by), by);
    EXPECT_EQ(link_of(own, host_mapped, by), kFast);
  }
}

TEST_F(Route, PassingCopiesTakeTheEngineOfTheStreamsGpu) {
  const CUdeviceptr device = mapped(on_gpu(kSlow));
  const CUdeviceptr own = plain(kFast);
  server.use(kFast);
  const CUstream first = server.stream();
  const CUstream second = server.stream();
  const CUevent start = server.recorded(first);
  ASSERT_EQ(server.cu.cuMemcpyAsync(device, host, kSize, first), CUDA_SUCCESS);
  ASSERT_EQ(server.cu.cuMemcpyAsync(own, host, kSize, second), CUDA_SUCCESS);
  const CUevent first_end = server.recorded(first);
  const CUevent second_end = server.recorded(second);
  ASSERT_EQ(server.cu.cuCtxSynchronize(), CUDA_SUCCESS);
  EXPECT_NEAR(server.elapsed_us(start, second_end), 2 * server.elapsed_us(start, first_end), 20);
}

TEST_F(Route, TheBytesArrive) {
  const CUdeviceptr device = mapped(on_gpu(kSlow));
  server.use(kFast);
  const std::vector<uint8_t> sent = random_bytes(1 << 20, 5);
  std::vector<uint8_t> got(sent.size());
  ASSERT_EQ(server.cu.cuMemcpyHtoD(device, sent.data(), sent.size()), CUDA_SUCCESS);
  ASSERT_EQ(server.cu.cuMemcpyDtoH(got.data(), device, got.size()), CUDA_SUCCESS);
  EXPECT_EQ(sent, got);
}

}  // namespace
}  // namespace braid::emulator_test
