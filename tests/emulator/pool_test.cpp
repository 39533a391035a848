// Stream-ordered pools: memory that is there from one point of a stream to another, for the GPUs
// that its pool was opened to.
#include <cstring>

#include "memory_calls.h"
#include "pull_rig.h"

namespace braid::emulator_test {
namespace {

constexpr size_t kSize = 3u << 20;

TEST(Pool, MemoryIsUsedInStreamOrder) {
  Emulated server;
  server.use(0);
  PoolCalls calls(server);
  CUstream stream = server.stream();
  const auto data = random_bytes(kSize, 2);
  uint8_t* pinned = server.pinned_memory(kSize);
  std::memcpy(pinned, data.data(), kSize);
  // Nothing waits in between.
  const CUdeviceptr memory = calls.allocated(kSize, stream);
  ASSERT_EQ(server.cu.cuMemcpyHtoDAsync(memory, pinned, kSize, stream), CUDA_SUCCESS);
  uint8_t* back = server.pinned_memory(kSize);
  ASSERT_EQ(server.cu.cuMemcpyDtoHAsync(back, memory, kSize, stream), CUDA_SUCCESS);
  ASSERT_EQ(calls.free_async(memory, stream), CUDA_SUCCESS);
  EXPECT_EQ(calls.free_async(memory, stream), CUDA_ERROR_INVALID_VALUE);
  ASSERT_EQ(server.cu.cuStreamSynchronize(stream), CUDA_SUCCESS);
  EXPECT_EQ(std::memcmp(back, data.data(), kSize), 0);
  EXPECT_EQ(server.cu.cuMemcpyDtoH(back, memory, 1), CUDA_ERROR_INVALID_VALUE);
}

TEST(Pool, UseBeforeTheAllocationFaults) {
  Emulated server;
  server.use(0);
  PoolCalls calls(server);
  CUstream stream = server.stream();
  CUstream other = server.stream();
  uint8_t* pinned = server.pinned_memory(kSize);
  // The allocation waits behind a long copy; the other stream does not.
  const CUdeviceptr before = server.device_memory(256u << 20);
  ASSERT_EQ(server.cu.cuMemsetD8Async(before, 0, 256u << 20, stream), CUDA_SUCCESS);
  const CUdeviceptr memory = calls.allocated(kSize, stream);
  ASSERT_EQ(server.cu.cuMemcpyHtoDAsync(memory, pinned, 16, other), CUDA_SUCCESS);
  EXPECT_EQ(server.cu.cuStreamSynchronize(other), CUDA_ERROR_ILLEGAL_ADDRESS);
}

TEST(Pool, AnEventMakesTheAllocationsOfAnotherStreamUsable) {
  Emulated server;
  server.use(0);
  PoolCalls calls(server);
  CUstream stream = server.stream();
  CUstream other = server.stream();
  uint8_t* pinned = server.pinned_memory(kSize);
  const CUdeviceptr before = server.device_memory(256u << 20);
  ASSERT_EQ(server.cu.cuMemsetD8Async(before, 0, 256u << 20, stream), CUDA_SUCCESS);
  const CUdeviceptr memory = calls.allocated(kSize, stream);
  ASSERT_EQ(server.cu.cuStreamWaitEvent(other, server.recorded(stream), 0), CUDA_SUCCESS);
  ASSERT_EQ(server.cu.cuMemcpyHtoDAsync(memory, pinned, kSize, other), CUDA_SUCCESS);
  EXPECT_EQ(server.cu.cuStreamSynchronize(other), CUDA_SUCCESS);
}

// The call has freed it, though the stream has not come so far.
TEST(Pool, ACopyThatIsEnqueuedAfterTheFreeIsRefused) {
  Emulated server;
  server.use(0);
  PoolCalls calls(server);
  CUstream stream = server.stream();
  uint8_t* pinned = server.pinned_memory(kSize);
  const CUdeviceptr memory = calls.allocated(kSize, stream);
  // Holds the stream, so that the memory is still there.
  const CUdeviceptr before = server.device_memory(256u << 20);
  ASSERT_EQ(server.cu.cuMemsetD8Async(before, 0, 256u << 20, stream), CUDA_SUCCESS);
  ASSERT_EQ(server.cu.cuMemcpyHtoDAsync(memory, pinned, kSize, stream), CUDA_SUCCESS);
  ASSERT_EQ(calls.free_async(memory, stream), CUDA_SUCCESS);
  EXPECT_EQ(server.cu.cuMemcpyHtoDAsync(memory, pinned, kSize, stream), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(server.cu.cuStreamSynchronize(stream), CUDA_SUCCESS);
}

TEST(Pool, MemoryIsNotHandedOutAgainBeforeTheStreamHasFreedIt) {
  Emulated server;
  server.use(0);
  PoolCalls calls(server);
  CUstream stream = server.stream();
  CUstream other = server.stream();
  const auto data = random_bytes(kSize, 9);
  uint8_t* pinned = server.pinned_memory(kSize);
  uint8_t* back = server.pinned_memory(kSize);
  std::memcpy(pinned, data.data(), kSize);
  const CUdeviceptr before = server.device_memory(256u << 20);
  ASSERT_EQ(server.cu.cuMemsetD8Async(before, 0, 256u << 20, stream), CUDA_SUCCESS);
  const CUdeviceptr first = calls.allocated(kSize, stream);
  ASSERT_EQ(server.cu.cuMemcpyHtoDAsync(first, pinned, kSize, stream), CUDA_SUCCESS);
  ASSERT_EQ(server.cu.cuMemcpyDtoHAsync(back, first, kSize, stream), CUDA_SUCCESS);
  ASSERT_EQ(calls.free_async(first, stream), CUDA_SUCCESS);
  const CUdeviceptr second = calls.allocated(kSize, other);
  EXPECT_NE(second, first);
  ASSERT_EQ(server.cu.cuMemsetD8Async(second, 0xee, kSize, other), CUDA_SUCCESS);
  ASSERT_EQ(server.cu.cuCtxSynchronize(), CUDA_SUCCESS);
  EXPECT_EQ(std::memcmp(back, data.data(), kSize), 0);
  EXPECT_EQ(calls.allocated(kSize, other), first);  // now it may be
}

TEST(Pool, AFullGpuWaitsForWhatItsStreamsWillFree) {
  Emulated server;
  server.use(0);
  PoolCalls calls(server);
  CUstream stream = server.stream();
  size_t free_bytes = 0;
  ASSERT_EQ(server.cu.cuMemGetInfo(&free_bytes, nullptr), CUDA_SUCCESS);
  const size_t most = free_bytes / 3 * 2;
  for (int round = 0; round < 5; ++round) {
    const CUdeviceptr memory = calls.allocated(most, stream);
    ASSERT_EQ(server.cu.cuMemsetD8Async(memory, 1, 4096, stream), CUDA_SUCCESS);
    ASSERT_EQ(calls.free_async(memory, stream), CUDA_SUCCESS);
  }
  const CUdeviceptr kept = calls.allocated(most, stream);
  CUdeviceptr more = 0;
  EXPECT_EQ(calls.allocate(&more, most, stream), CUDA_ERROR_OUT_OF_MEMORY);
  // cuMemFree takes memory of pools too, and cuMemFreeAsync any device memory.
  EXPECT_EQ(server.cu.cuMemFree(kept), CUDA_SUCCESS);
  const CUdeviceptr plain = server.device_memory(most);
  ASSERT_EQ(calls.free_async(plain, stream), CUDA_SUCCESS);
  ASSERT_EQ(server.cu.cuStreamSynchronize(stream), CUDA_SUCCESS);
  size_t free_after = 0;
  ASSERT_EQ(server.cu.cuMemGetInfo(&free_after, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(free_after, free_bytes);
}

TEST(Pool, ACaptureRefusesItAndGoesOn) {
  Emulated server;
  server.use(0);
  PoolCalls calls(server);
  CUstream stream = server.stream();
  const CUdeviceptr memory = calls.allocated(kSize, stream);
  ASSERT_EQ(server.cu.cuStreamSynchronize(stream), CUDA_SUCCESS);
  const auto begin =
      server.symbol<CUresult (*)(CUstream, CUstreamCaptureMode)>("cuStreamBeginCapture_v2");
  const auto end = server.symbol<CUresult (*)(CUstream, CUgraph*)>("cuStreamEndCapture");
  ASSERT_EQ(begin(stream, CU_STREAM_CAPTURE_MODE_GLOBAL), CUDA_SUCCESS);
  CUdeviceptr more = 0;
  EXPECT_EQ(calls.allocate(&more, kSize, stream), CUDA_ERROR_NOT_SUPPORTED);
  EXPECT_EQ(calls.free_async(memory, stream), CUDA_ERROR_INVALID_VALUE);
  CUgraph graph = nullptr;
  EXPECT_EQ(end(stream, &graph), CUDA_SUCCESS);
  // The memory is still there to be freed, once.
  EXPECT_EQ(calls.free_async(memory, stream), CUDA_SUCCESS);
  EXPECT_EQ(calls.free_async(memory, stream), CUDA_ERROR_INVALID_VALUE);
}

TEST(Pool, WorkThatIsGivenUpStillFrees) {
  Emulated server;
  server.use(0);
  PoolCalls calls(server);
  CUstream stream = server.stream();
  uint8_t* word = server.pinned_memory(4);
  std::memset(word, 0, 4);
  const CUdeviceptr memory = calls.allocated(kSize, stream);
  ASSERT_EQ(server.cu.cuStreamWaitValue32(stream, reinterpret_cast<CUdeviceptr>(word), 1,
                                          CU_STREAM_WAIT_VALUE_GEQ),
            CUDA_SUCCESS);
  ASSERT_EQ(calls.free_async(memory, stream), CUDA_SUCCESS);
  const CUmemoryPool pool = calls.default_pool(0);
  EXPECT_GE(calls.attribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT), kSize);
  const auto reset = server.symbol<CUresult (*)(CUdevice)>("cuDevicePrimaryCtxReset_v2");
  ASSERT_EQ(reset(0), CUDA_SUCCESS);
  EXPECT_EQ(calls.attribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT), 0u);
}

TEST(Pool, OnlyItsOwnGpuUntilOthersAreGrantedAccess) {
  Emulated server("h200x4", kFaultsStay);
  CUcontext one = server.use(1);
  CUcontext zero = server.use(0);
  PoolCalls calls(server);
  ASSERT_EQ(server.cu.cuCtxEnablePeerAccess(one, 0), CUDA_SUCCESS);
  const CUmemoryPool pool = calls.default_pool(0);
  CUmemLocation location = on_gpu(1);
  CUmemAccess_flags flags = CU_MEM_ACCESS_FLAGS_PROT_MAX;
  ASSERT_EQ(calls.get_access(&flags, pool, &location), CUDA_SUCCESS);
  EXPECT_EQ(flags, CU_MEM_ACCESS_FLAGS_PROT_NONE);
  const CUdeviceptr memory = calls.allocated(kSize, nullptr);
  ASSERT_EQ(server.cu.cuCtxSynchronize(), CUDA_SUCCESS);
  const auto data = random_bytes(kSize, 5);
  ASSERT_EQ(server.cu.cuCtxSetCurrent(one), CUDA_SUCCESS);
  EXPECT_EQ(facts_of(server, memory).access,
            static_cast<unsigned>(CU_POINTER_ATTRIBUTE_ACCESS_FLAG_NONE));
  // Granting counts for what has been allocated already.
  CUmemAccessDesc wanted = access_by(1);
  ASSERT_EQ(calls.set_access(pool, &wanted, 1), CUDA_SUCCESS);
  ASSERT_EQ(server.cu.cuMemcpyHtoD(memory, data.data(), kSize), CUDA_SUCCESS);
  ASSERT_EQ(server.cu.cuCtxSynchronize(), CUDA_SUCCESS);
  ASSERT_EQ(calls.get_access(&flags, pool, &location), CUDA_SUCCESS);
  EXPECT_EQ(flags, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
  // The owner's access cannot be taken away.
  wanted = access_by(0, CU_MEM_ACCESS_FLAGS_PROT_NONE);
  EXPECT_EQ(calls.set_access(pool, &wanted, 1), CUDA_ERROR_INVALID_VALUE);
  wanted = access_by(1, CU_MEM_ACCESS_FLAGS_PROT_NONE);
  ASSERT_EQ(calls.set_access(pool, &wanted, 1), CUDA_SUCCESS);
  EXPECT_EQ(server.cu.cuMemcpyHtoD(memory, data.data(), 1), CUDA_SUCCESS);
  EXPECT_EQ(server.cu.cuCtxSynchronize(), CUDA_ERROR_ILLEGAL_ADDRESS);
  ASSERT_EQ(server.cu.cuCtxSetCurrent(zero), CUDA_SUCCESS);
  std::vector<uint8_t> back(kSize);
  ASSERT_EQ(server.cu.cuMemcpyDtoH(back.data(), memory, kSize), CUDA_SUCCESS);
  EXPECT_TRUE(back == data);
}

// GPU 1 pulls into memory of GPU 0's pool; peer access is enabled and does not count.
void pull_into_a_pool(bool granted) {
  Rig rig("h200x4", 2, 0, kFaultsStay);
  rig.enable_peers();
  PoolCalls calls(rig.server);
  const CUmemAccessDesc wanted = access_by(1);
  if (granted) {
    ASSERT_EQ(calls.set_access(calls.default_pool(0), &wanted, 1), CUDA_SUCCESS);
  }
  const CUdeviceptr memory = calls.allocated(kSize, nullptr);
  ASSERT_EQ(rig.server.cu.cuMemsetD8(memory, 0x44, kSize), CUDA_SUCCESS);
  ASSERT_EQ(rig.server.cu.cuCtxSynchronize(), CUDA_SUCCESS);
  const auto data = random_bytes(kSize, 14);
  uint8_t* host = rig.server.pinned_memory(kSize);
  std::memcpy(host, data.data(), kSize);
  PullArgs args = rig.args(reinterpret_cast<uint64_t>(host), memory, kSize, 65536, 1);
  args.total_blocks = 1;
  rig.server.use(1);
  ASSERT_EQ(rig.launch(args, 1, 1, 1), CUDA_SUCCESS);
  EXPECT_EQ(rig.server.cu.cuStreamSynchronize(rig.streams[1]),
            granted ? CUDA_SUCCESS : CUDA_ERROR_ILLEGAL_ADDRESS);
  rig.server.use(0);
  std::vector<uint8_t> back(kSize);
  ASSERT_EQ(rig.server.cu.cuMemcpyDtoH(back.data(), memory, kSize), CUDA_SUCCESS);
  EXPECT_TRUE(back == (granted ? data : std::vector<uint8_t>(kSize, 0x44)));
}

TEST(Pool, KernelsOfGrantedGpusMayTouchIt) { pull_into_a_pool(true); }
TEST(Pool, KernelsOfOtherGpusFault) { pull_into_a_pool(false); }

TEST(Pool, PointerAttributes) {
  Emulated server;
  server.use(1);
  PoolCalls calls(server);
  const CUdeviceptr memory = calls.allocated(1000, nullptr);
  const PointerFacts facts = facts_of(server, memory + 10);
  EXPECT_EQ(facts.context, nullptr);
  EXPECT_EQ(facts.pool, calls.default_pool(1));
  EXPECT_EQ(facts.memory_type, static_cast<unsigned>(CU_MEMORYTYPE_DEVICE));
  EXPECT_EQ(facts.device, 1);
  EXPECT_EQ(facts.ipc_capable, 0);
  EXPECT_EQ(facts.range_start, memory);
  EXPECT_EQ(facts.range_bytes, 1000u);
  EXPECT_EQ(facts.access, static_cast<unsigned>(CU_POINTER_ATTRIBUTE_ACCESS_FLAG_READWRITE));
  EXPECT_EQ(facts.host, nullptr);
}

TEST(Pool, CountsAndHoldsBackUpToTheThreshold) {
  Emulated server;
  server.use(0);
  PoolCalls calls(server);
  constexpr size_t kPart = 4u << 20;
  size_t free_before = 0;
  size_t free_now = 0;
  ASSERT_EQ(server.cu.cuMemGetInfo(&free_before, nullptr), CUDA_SUCCESS);
  const auto taken = [&] {
    EXPECT_EQ(server.cu.cuMemGetInfo(&free_now, nullptr), CUDA_SUCCESS);
    return free_before - free_now;
  };
  const CUmemoryPool pool = calls.default_pool(0);
  cuuint64_t threshold = kPart;
  ASSERT_EQ(calls.set_attribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold), CUDA_SUCCESS);
  std::vector<CUdeviceptr> parts;
  for (int i = 0; i < 3; ++i) parts.push_back(calls.allocated(kPart, nullptr));
  EXPECT_EQ(calls.attribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT), 3 * kPart);
  EXPECT_EQ(taken(), 3 * kPart);
  for (const CUdeviceptr part : parts) ASSERT_EQ(calls.free_async(part, nullptr), CUDA_SUCCESS);
  ASSERT_EQ(server.cu.cuCtxSynchronize(), CUDA_SUCCESS);
  EXPECT_EQ(calls.attribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT), 0u);
  EXPECT_EQ(calls.attribute(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH), 3 * kPart);
  EXPECT_EQ(calls.attribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), kPart);
  EXPECT_EQ(calls.attribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH), 3 * kPart);
  EXPECT_EQ(taken(), kPart);
  cuuint64_t zero = 0;
  ASSERT_EQ(calls.set_attribute(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH, &zero), CUDA_SUCCESS);
  EXPECT_EQ(calls.attribute(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH), 0u);
  EXPECT_EQ(calls.set_attribute(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH, &threshold),
            CUDA_ERROR_INVALID_VALUE);
  ASSERT_EQ(calls.trim(pool, 0), CUDA_SUCCESS);
  EXPECT_EQ(calls.attribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), 0u);
  EXPECT_EQ(taken(), 0u);
}

TEST(Pool, PoolsOfTheProgram) {
  Emulated server;
  server.use(0);
  PoolCalls calls(server);
  CUmemPoolProps wanted{};
  wanted.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  wanted.location = on_gpu(0);
  wanted.maxSize = 8u << 20;
  CUmemoryPool pool = nullptr;
  ASSERT_EQ(calls.create(&pool, &wanted), CUDA_SUCCESS);
  CUstream stream = server.stream();
  CUdeviceptr memory = 0;
  EXPECT_EQ(calls.allocate_from(&memory, 9u << 20, pool, stream), CUDA_ERROR_OUT_OF_MEMORY);
  ASSERT_EQ(calls.allocate_from(&memory, kSize, pool, stream), CUDA_SUCCESS);
  EXPECT_EQ(facts_of(server, memory).pool, pool);
  EXPECT_EQ(calls.set_current(1, pool), CUDA_ERROR_INVALID_VALUE);
  ASSERT_EQ(calls.set_current(0, pool), CUDA_SUCCESS);
  EXPECT_EQ(facts_of(server, calls.allocated(16, stream)).pool, pool);
  // Destroyed while memory of it is in use: that goes on, and the default pool takes over.
  ASSERT_EQ(calls.destroy(pool), CUDA_SUCCESS);
  EXPECT_EQ(calls.destroy(pool), CUDA_ERROR_INVALID_VALUE);
  ASSERT_EQ(server.cu.cuMemsetD8Async(memory, 3, kSize, stream), CUDA_SUCCESS);
  ASSERT_EQ(calls.free_async(memory, stream), CUDA_SUCCESS);
  ASSERT_EQ(server.cu.cuStreamSynchronize(stream), CUDA_SUCCESS);
  CUmemoryPool current = nullptr;
  ASSERT_EQ(calls.get_current(&current, 0), CUDA_SUCCESS);
  EXPECT_EQ(current, calls.default_pool(0));
  EXPECT_EQ(calls.destroy(current), CUDA_ERROR_INVALID_VALUE);

  wanted.handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  EXPECT_EQ(calls.create(&pool, &wanted), CUDA_ERROR_NOT_SUPPORTED);
  wanted.location = on_gpu(9);
  EXPECT_EQ(calls.create(&pool, &wanted), CUDA_ERROR_INVALID_DEVICE);
  EXPECT_EQ(calls.free_async(reinterpret_cast<CUdeviceptr>(server.pinned_memory(16)), stream),
            CUDA_ERROR_INVALID_VALUE);
}

}  // namespace
}  // namespace braid::emulator_test
