// Copies of every kind: every byte is right, at odd sizes and offsets, and nothing else changes.
#include <cstring>

#include "fixture.h"

namespace braid::emulator_test {
namespace {

constexpr size_t kSizes[] = {1, 3, 4, 511, 4097, 65537, (1u << 20) + 13};
constexpr size_t kOffsets[] = {0, 1, 7, 513};
constexpr size_t kRoom = (1u << 20) + 4096;

struct Memories {
  explicit Memories(Emulated& server) : device(server.device_memory(kRoom)) {}
  CUdeviceptr device;
  std::vector<uint8_t> before = random_bytes(kRoom, 1);
};

// Copies to the device and back by `up` and `down` with guards around, and compares everything.
template <typename Up, typename Down>
void round_trips(Emulated& server, uint8_t* host, Up up, Down down) {
  Memories memories(server);
  for (const size_t size : kSizes)
    for (const size_t offset : kOffsets) {
      const auto data = random_bytes(size, size * 31 + offset);
      ASSERT_EQ(server.cu.cuMemcpyHtoD(memories.device, memories.before.data(), kRoom),
                CUDA_SUCCESS);
      std::memcpy(host + offset, data.data(), size);
      ASSERT_EQ(up(memories.device + offset, host + offset, size), CUDA_SUCCESS);
      std::vector<uint8_t> all(kRoom);
      ASSERT_EQ(server.cu.cuMemcpyDtoH(all.data(), memories.device, kRoom), CUDA_SUCCESS);
      auto expected = memories.before;
      std::memcpy(expected.data() + offset, data.data(), size);
      ASSERT_TRUE(all == expected) << size << " bytes at " << offset;
      std::memset(host, 0x5a, kRoom);
      ASSERT_EQ(down(host + offset, memories.device + offset, size), CUDA_SUCCESS);
      ASSERT_EQ(std::memcmp(host + offset, data.data(), size), 0);
      for (size_t i = 0; i < offset; ++i) ASSERT_EQ(host[i], 0x5a);
      for (size_t i = offset + size; i < kRoom; ++i) ASSERT_EQ(host[i], 0x5a);
    }
}

TEST(Copy, PinnedSynchronous) {
  Emulated server;
  server.use(0);
  round_trips(
      server, server.pinned_memory(kRoom),
      [&](CUdeviceptr to, const void* from, size_t size) {
        return server.cu.cuMemcpyHtoD(to, from, size);
      },
      [&](void* to, CUdeviceptr from, size_t size) {
        return server.cu.cuMemcpyDtoH(to, from, size);
      });
}

TEST(Copy, PinnedAsynchronous) {
  Emulated server;
  server.use(0);
  CUstream stream = server.stream();
  round_trips(
      server, server.pinned_memory(kRoom),
      [&](CUdeviceptr to, const void* from, size_t size) {
        const CUresult result = server.cu.cuMemcpyHtoDAsync(to, from, size, stream);
        EXPECT_EQ(server.cu.cuStreamSynchronize(stream), CUDA_SUCCESS);
        return result;
      },
      [&](void* to, CUdeviceptr from, size_t size) {
        const CUresult result = server.cu.cuMemcpyDtoHAsync(to, from, size, stream);
        EXPECT_EQ(server.cu.cuStreamSynchronize(stream), CUDA_SUCCESS);
        return result;
      });
}

// CUDA driver API, "API synchronization behavior": the call returns when the bytes have left the
// program's memory. A stream that does not wait for the legacy one may come before them.
TEST(Copy, SynchronousFromPageableReturnsBeforeTheBytesAreThere) {
  constexpr size_t kSize = 16 << 20;
  Emulated server;
  server.use(0);
  const CUdeviceptr device = server.device_memory(kSize);
  std::vector<uint8_t> sent(kSize, 7);
  uint8_t* seen = server.pinned_memory(1);
  *seen = 0;
  ASSERT_EQ(server.cu.cuMemsetD8Async(device, 1, kSize, CU_STREAM_LEGACY), CUDA_SUCCESS);
  ASSERT_EQ(server.cu.cuMemcpyHtoD(device, sent.data(), kSize), CUDA_SUCCESS);
  std::fill(sent.begin(), sent.end(), 9);
  EXPECT_EQ(server.cu.cuStreamQuery(CU_STREAM_LEGACY), CUDA_ERROR_NOT_READY);
  ASSERT_EQ(server.cu.cuMemcpyDtoH(seen, device + kSize - 1, 1), CUDA_SUCCESS);
  EXPECT_EQ(*seen, 7);
}

TEST(Copy, PageableStagesAtTheCall) {
  Emulated server;
  server.use(0);
  CUstream stream = server.stream();
  std::vector<uint8_t> host(kRoom);
  round_trips(
      server, host.data(),
      [&](CUdeviceptr to, const void* from, size_t size) {
        const CUresult result = server.cu.cuMemcpyHtoDAsync(to, from, size, stream);
        std::memset(const_cast<void*>(from), 0xee, size);  // the program may reuse it at once
        EXPECT_EQ(server.cu.cuStreamSynchronize(stream), CUDA_SUCCESS);
        return result;
      },
      // Returns when the bytes are there.
      [&](void* to, CUdeviceptr from, size_t size) {
        return server.cu.cuMemcpyDtoHAsync(to, from, size, stream);
      });
}

TEST(Copy, UnifiedAddresses) {
  Emulated server;
  server.use(0);
  const auto any = server.symbol<CUresult (*)(CUdeviceptr, CUdeviceptr, size_t)>("cuMemcpy");
  const auto number = [](const void* address) { return reinterpret_cast<CUdeviceptr>(address); };
  round_trips(
      server, server.pinned_memory(kRoom),
      [&](CUdeviceptr to, const void* from, size_t size) { return any(to, number(from), size); },
      [&](void* to, CUdeviceptr from, size_t size) { return any(number(to), from, size); });
}

TEST(Copy, RegisteredMemoryIsPinned) {
  Emulated server;
  server.use(0);
  std::vector<uint8_t> host(kRoom);
  ASSERT_EQ(server.cu.cuMemHostRegister(host.data(), kRoom, 0), CUDA_SUCCESS);
  EXPECT_EQ(server.cu.cuMemHostRegister(host.data() + 5, 10, 0),
            CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
  CUdeviceptr device = server.device_memory(kRoom);
  CUstream stream = server.stream();
  // Read when the copy runs, not when it is called.
  ASSERT_EQ(server.cu.cuMemcpyHtoDAsync(device, host.data(), kRoom, stream), CUDA_SUCCESS);
  host[17] = 0x99;
  ASSERT_EQ(server.cu.cuStreamSynchronize(stream), CUDA_SUCCESS);
  uint8_t byte = 0;
  ASSERT_EQ(server.cu.cuMemcpyDtoH(&byte, device + 17, 1), CUDA_SUCCESS);
  EXPECT_EQ(byte, 0x99);
  EXPECT_EQ(server.cu.cuMemHostUnregister(host.data()), CUDA_SUCCESS);
  EXPECT_EQ(server.cu.cuMemHostUnregister(host.data()), CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
}

TEST(Copy, BetweenDevices) {
  Emulated server;
  CUcontext one = server.use(1);
  CUdeviceptr on_one = server.device_memory(kRoom);
  CUcontext zero = server.use(0);
  CUdeviceptr on_zero = server.device_memory(kRoom);
  CUdeviceptr also_on_zero = server.device_memory(kRoom);
  CUstream stream = server.stream();
  const auto copy = server.symbol<CUresult (*)(CUdeviceptr, CUdeviceptr, size_t, CUstream)>(
      "cuMemcpyDtoDAsync_v2");
  for (const size_t size : kSizes) {
    const auto data = random_bytes(size, size);
    ASSERT_EQ(server.cu.cuMemcpyHtoD(on_zero + 3, data.data(), size), CUDA_SUCCESS);
    ASSERT_EQ(server.cu.cuMemcpyPeerAsync(on_one + 1, one, on_zero + 3, zero, size, stream),
              CUDA_SUCCESS);
    ASSERT_EQ(copy(also_on_zero + 5, on_one + 1, size, stream), CUDA_SUCCESS);
    ASSERT_EQ(server.cu.cuStreamSynchronize(stream), CUDA_SUCCESS);
    std::vector<uint8_t> back(size);
    ASSERT_EQ(server.cu.cuMemcpyDtoH(back.data(), also_on_zero + 5, size), CUDA_SUCCESS);
    ASSERT_TRUE(back == data) << size;
  }
}

TEST(Copy, Memset) {
  Emulated server;
  server.use(0);
  CUdeviceptr device = server.device_memory(64);
  const auto set32 = server.symbol<CUresult (*)(CUdeviceptr, unsigned, size_t)>("cuMemsetD32_v2");
  const auto set16 =
      server.symbol<CUresult (*)(CUdeviceptr, unsigned short, size_t)>("cuMemsetD16_v2");
  ASSERT_EQ(server.cu.cuMemsetD8(device, 0xab, 64), CUDA_SUCCESS);
  ASSERT_EQ(set32(device + 4, 0x01020304, 2), CUDA_SUCCESS);
  ASSERT_EQ(set16(device + 14, 0x0506, 1), CUDA_SUCCESS);
  EXPECT_EQ(set32(device + 2, 0, 1), CUDA_ERROR_INVALID_VALUE);
  uint8_t bytes[64];
  ASSERT_EQ(server.cu.cuMemcpyDtoH(bytes, device, 64), CUDA_SUCCESS);
  const uint8_t expected[] = {0xab, 0xab, 0xab, 0xab, 4,    3, 2, 1,   4,
                              3,    2,    1,    0xab, 0xab, 6, 5, 0xab};
  EXPECT_EQ(std::memcmp(bytes, expected, sizeof(expected)), 0);
}

TEST(Copy, RangesAreChecked) {
  Emulated server;
  server.use(0);
  CUdeviceptr device = server.device_memory(1000);
  uint8_t* pinned = server.pinned_memory(1000);
  std::vector<uint8_t> host(2000);
  EXPECT_EQ(server.cu.cuMemcpyHtoD(device, host.data(), 1001), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(server.cu.cuMemcpyHtoD(device + 1000, host.data(), 1), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(server.cu.cuMemcpyDtoH(host.data(), device + 990, 11), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(server.cu.cuMemcpyHtoD(device, pinned + 990, 11), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(server.cu.cuMemcpyHtoD(device, nullptr, 1), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(server.cu.cuMemcpyHtoD(0, host.data(), 1), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(server.cu.cuMemcpyHtoD(device, reinterpret_cast<void*>(0x10), 1),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(server.cu.cuMemcpyHtoD(device, host.data(), 0), CUDA_SUCCESS);
  EXPECT_EQ(server.cu.cuMemcpyHtoD(device, host.data(), 1000), CUDA_SUCCESS);
}

}  // namespace
}  // namespace braid::emulator_test
