// Host memory that is more or less than pinned: managed, write-combined, read-only; and what IPC
// handles say of device memory.
#include <sys/mman.h>

#include <cstring>

#include "memory_calls.h"
#include "pull_rig.h"

namespace braid::emulator_test {
namespace {

constexpr size_t kSize = (1u << 20) + 77;

CUdeviceptr number(const void* address) { return reinterpret_cast<CUdeviceptr>(address); }

CUdeviceptr managed_memory(Emulated& server, size_t size) {
  CUdeviceptr address = 0;
  const auto allocate = server.symbol<decltype(&::cuMemAllocManaged)>("cuMemAllocManaged");
  EXPECT_EQ(allocate(&address, size, CU_MEM_ATTACH_GLOBAL), CUDA_SUCCESS);
  return address;
}

TEST(Managed, CpuAndGpusShareIt) {
  Emulated server;
  server.use(0);
  const CUdeviceptr managed = managed_memory(server, kSize);
  const CUdeviceptr device = server.device_memory(kSize);
  const auto data = random_bytes(kSize, 1);
  uint8_t* bytes = reinterpret_cast<uint8_t*>(managed);
  std::memcpy(bytes, data.data(), kSize);
  CUstream stream = server.stream();
  const CUevent start = server.recorded(stream);
  ASSERT_EQ(server.cu.cuMemcpyHtoDAsync(device, bytes, kSize, stream), CUDA_SUCCESS);
  const CUevent end = server.recorded(stream);
  ASSERT_EQ(server.cu.cuStreamSynchronize(stream), CUDA_SUCCESS);
  EXPECT_GT(server.elapsed_us(start, end), 10);  // over the GPU's PCIe link
  ASSERT_EQ(server.cu.cuMemsetD8(managed, 0, kSize), CUDA_SUCCESS);
  ASSERT_EQ(server.cu.cuCtxSynchronize(), CUDA_SUCCESS);
  for (size_t i = 0; i < kSize; ++i) ASSERT_EQ(bytes[i], 0) << i;
  ASSERT_EQ(server.cu.cuMemcpyDtoH(bytes, device, kSize), CUDA_SUCCESS);
  EXPECT_EQ(std::memcmp(bytes, data.data(), kSize), 0);

  const PointerFacts facts = facts_of(server, managed + 9);
  EXPECT_EQ(facts.managed, 1);
  EXPECT_EQ(facts.memory_type, static_cast<unsigned>(CU_MEMORYTYPE_DEVICE));
  EXPECT_EQ(facts.host, bytes + 9);
  EXPECT_EQ(facts.ipc_capable, 0);
  EXPECT_EQ(facts.range_start, managed);
  EXPECT_EQ(facts.range_bytes, kSize);
  EXPECT_EQ(facts_of(server, device).managed, 0);
  EXPECT_EQ(server.cu.cuMemFree(managed), CUDA_SUCCESS);
  EXPECT_EQ(server.cu.cuMemFree(managed), CUDA_ERROR_INVALID_VALUE);
}

TEST(Managed, PrefetchAndAdviceAreChecked) {
  Emulated server;
  server.use(0);
  const CUdeviceptr managed = managed_memory(server, 8192);
  const CUdeviceptr device = server.device_memory(8192);
  const auto prefetch =
      server.symbol<CUresult (*)(CUdeviceptr, size_t, CUdevice, CUstream)>("cuMemPrefetchAsync");
  const auto prefetch_to =
      server.symbol<CUresult (*)(CUdeviceptr, size_t, CUmemLocation, unsigned, CUstream)>(
          "cuMemPrefetchAsync_v2");
  CUstream stream = server.stream();
  EXPECT_EQ(prefetch(managed, 8192, 1, stream), CUDA_SUCCESS);
  EXPECT_EQ(prefetch(managed, 8192, CU_DEVICE_CPU, stream), CUDA_SUCCESS);
  EXPECT_EQ(prefetch(managed, 8192, 4, stream), CUDA_ERROR_INVALID_DEVICE);
  EXPECT_EQ(prefetch(managed, 8193, 0, stream), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(prefetch(managed, 0, 0, stream), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(prefetch(device, 8192, 0, stream), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(prefetch_to(managed, 8192, on_gpu(0), 0, stream), CUDA_SUCCESS);
  EXPECT_EQ(prefetch_to(managed, 8192, on_gpu(0), 1, stream), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(server.cu.cuStreamSynchronize(stream), CUDA_SUCCESS);
  const auto advise =
      server.symbol<CUresult (*)(CUdeviceptr, size_t, CUmem_advise, CUdevice)>("cuMemAdvise");
  EXPECT_EQ(advise(managed, 8192, CU_MEM_ADVISE_SET_READ_MOSTLY, 99), CUDA_SUCCESS);
  EXPECT_EQ(advise(managed, 8192, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, 1), CUDA_SUCCESS);
  EXPECT_EQ(advise(managed, 8192, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, 99),
            CUDA_ERROR_INVALID_DEVICE);
  EXPECT_EQ(advise(managed, 8192, static_cast<CUmem_advise>(77), 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(advise(device, 8192, CU_MEM_ADVISE_SET_READ_MOSTLY, 0), CUDA_ERROR_INVALID_VALUE);
  const auto allocate = server.symbol<decltype(&::cuMemAllocManaged)>("cuMemAllocManaged");
  CUdeviceptr none = 0;
  EXPECT_EQ(allocate(&none, 0, CU_MEM_ATTACH_GLOBAL), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(allocate(&none, 16, 0), CUDA_ERROR_INVALID_VALUE);
}

TEST(Managed, ACaptureRefusesAPrefetchAndGoesOn) {
  Emulated server;
  server.use(0);
  const CUdeviceptr managed = managed_memory(server, 8192);
  CUstream stream = server.stream();
  const auto begin =
      server.symbol<CUresult (*)(CUstream, CUstreamCaptureMode)>("cuStreamBeginCapture_v2");
  const auto end = server.symbol<CUresult (*)(CUstream, CUgraph*)>("cuStreamEndCapture");
  const auto prefetch =
      server.symbol<CUresult (*)(CUdeviceptr, size_t, CUdevice, CUstream)>("cuMemPrefetchAsync");
  ASSERT_EQ(begin(stream, CU_STREAM_CAPTURE_MODE_GLOBAL), CUDA_SUCCESS);
  EXPECT_EQ(prefetch(managed, 8192, 0, stream), CUDA_ERROR_NOT_SUPPORTED);
  CUgraph graph = nullptr;
  EXPECT_EQ(end(stream, &graph), CUDA_SUCCESS);
}

TEST(HostMemory, FlagsOfAllocationsAreKept) {
  Emulated server;
  server.use(0);
  const auto get = server.symbol<decltype(&::cuMemHostGetFlags)>("cuMemHostGetFlags");
  void* combined = nullptr;
  ASSERT_EQ(server.cu.cuMemHostAlloc(&combined, kSize, CU_MEMHOSTALLOC_WRITECOMBINED),
            CUDA_SUCCESS);
  unsigned flags = 0;
  ASSERT_EQ(get(&flags, combined), CUDA_SUCCESS);
  EXPECT_NE(flags & CU_MEMHOSTALLOC_WRITECOMBINED, 0u);
  ASSERT_EQ(get(&flags, server.pinned_memory(16)), CUDA_SUCCESS);
  EXPECT_EQ(flags & CU_MEMHOSTALLOC_WRITECOMBINED, 0u);
  EXPECT_NE(flags & CU_MEMHOSTALLOC_PORTABLE, 0u);
  // Registered memory answers alike.
  std::vector<uint8_t> pages(kSize);
  ASSERT_EQ(server.cu.cuMemHostRegister(pages.data(), kSize, CU_MEMHOSTREGISTER_PORTABLE),
            CUDA_SUCCESS);
  ASSERT_EQ(get(&flags, pages.data()), CUDA_SUCCESS);
  EXPECT_EQ(flags, unsigned{CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP});
  EXPECT_EQ(server.cu.cuMemHostUnregister(pages.data()), CUDA_SUCCESS);
  EXPECT_EQ(get(&flags, pages.data()), CUDA_ERROR_INVALID_VALUE);
  // It is as good a source as any.
  const auto data = random_bytes(kSize, 3);
  std::memcpy(combined, data.data(), kSize);
  const CUdeviceptr device = server.device_memory(kSize);
  ASSERT_EQ(server.cu.cuMemcpyHtoD(device, combined, kSize), CUDA_SUCCESS);
  std::vector<uint8_t> back(kSize);
  ASSERT_EQ(server.cu.cuMemcpyDtoH(back.data(), device, kSize), CUDA_SUCCESS);
  EXPECT_TRUE(back == data);
}

TEST(HostMemory, RegistrationsMayTouchButNotOverlap) {
  Emulated server;
  server.use(0);
  std::vector<uint8_t> host(30'000);
  const auto add = [&](size_t from, size_t to) {
    return server.cu.cuMemHostRegister(host.data() + from, to - from, 0);
  };
  ASSERT_EQ(add(10'000, 20'000), CUDA_SUCCESS);
  EXPECT_EQ(add(12'000, 13'000), CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
  EXPECT_EQ(add(5'000, 10'001), CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
  EXPECT_EQ(add(19'999, 25'000), CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
  EXPECT_EQ(add(0, 30'000), CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
  EXPECT_EQ(add(5'000, 10'000), CUDA_SUCCESS);
  EXPECT_EQ(add(20'000, 30'000), CUDA_SUCCESS);
}

TEST(HostMemory, KernelsMayCrossRegistrationsThatTouchAndCopiesMayNot) {
  Rig rig("h200x4", 1, 0);
  std::vector<uint8_t> host = random_bytes(kSize, 22);
  constexpr size_t kCut = 500'001;
  for (const auto& [from, to] : {std::pair{size_t{0}, kCut}, {kCut, kSize - 9}})
    ASSERT_EQ(rig.server.cu.cuMemHostRegister(host.data() + from, to - from, 0), CUDA_SUCCESS);
  const CUdeviceptr device = rig.server.device_memory(kSize);
  rig.launch_everywhere(rig.args(number(host.data()), device, kSize - 9, 65536, 2), 2);
  rig.synchronize();
  std::vector<uint8_t> back(kSize - 9);
  ASSERT_EQ(rig.server.cu.cuMemcpyDtoH(back.data(), device, back.size()), CUDA_SUCCESS);
  EXPECT_EQ(std::memcmp(back.data(), host.data(), back.size()), 0);
  for (const auto& [from, to] : {std::pair{size_t{0}, kCut}, {kCut, kSize - 9}})
    EXPECT_EQ(rig.server.cu.cuMemcpyDtoH(host.data() + from, device, to - from), CUDA_SUCCESS);
  for (const size_t size : {kCut + 1, back.size(), kSize}) {
    EXPECT_EQ(rig.server.cu.cuMemcpyDtoH(host.data(), device, size), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(rig.server.cu.cuMemcpyHtoD(device, host.data(), size), CUDA_ERROR_INVALID_VALUE);
  }
}

// A page-aligned range that the CPU may only read, filled with 0x3d.
uint8_t* read_only_pages(size_t size) {
  void* pages = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  std::memset(pages, 0x3d, size);
  mprotect(pages, size, PROT_READ);
  return static_cast<uint8_t*>(pages);
}

TEST(HostMemory, PagesThatCannotBeWrittenNeedTheReadOnlyFlag) {
  Emulated server;
  server.use(0);
  int supported = 0;
  ASSERT_EQ(server.cu.cuDeviceGetAttribute(
                &supported, CU_DEVICE_ATTRIBUTE_READ_ONLY_HOST_REGISTER_SUPPORTED, 0),
            CUDA_SUCCESS);
  ASSERT_EQ(supported, 1);
  uint8_t* pages = read_only_pages(kSize);
  EXPECT_EQ(server.cu.cuMemHostRegister(pages, kSize, 0), CUDA_ERROR_INVALID_VALUE);
  ASSERT_EQ(server.cu.cuMemHostRegister(pages, kSize, CU_MEMHOSTREGISTER_READ_ONLY), CUDA_SUCCESS);
  const CUdeviceptr device = server.device_memory(kSize);
  ASSERT_EQ(server.cu.cuMemcpyHtoD(device, pages, kSize), CUDA_SUCCESS);
  std::vector<uint8_t> back(kSize);
  ASSERT_EQ(server.cu.cuMemcpyDtoH(back.data(), device, kSize), CUDA_SUCCESS);
  for (size_t i = 0; i < kSize; ++i) ASSERT_EQ(back[i], 0x3d) << i;
  EXPECT_EQ(facts_of(server, number(pages)).access,
            static_cast<unsigned>(CU_POINTER_ATTRIBUTE_ACCESS_FLAG_READ));
  // The other way is a fault.
  EXPECT_EQ(server.cu.cuMemcpyDtoH(pages, device, 1), CUDA_ERROR_ILLEGAL_ADDRESS);
}

// Also where the CPU may write: the flag is what counts.
TEST(HostMemory, KernelsReadReadOnlyRegistrationsAndFaultOnWritingThem) {
  Rig rig("h200x4", 1, 0);
  std::vector<uint8_t> host = random_bytes(kSize, 21);
  const std::vector<uint8_t> before = host;
  ASSERT_EQ(rig.server.cu.cuMemHostRegister(host.data(), kSize, CU_MEMHOSTREGISTER_READ_ONLY),
            CUDA_SUCCESS);
  const CUdeviceptr device = rig.server.device_memory(kSize);
  rig.launch_everywhere(rig.args(number(host.data()), device, kSize, 65536, 2), 2);
  rig.synchronize();
  std::vector<uint8_t> back(kSize);
  ASSERT_EQ(rig.server.cu.cuMemcpyDtoH(back.data(), device, kSize), CUDA_SUCCESS);
  EXPECT_TRUE(back == before);
  ASSERT_EQ(rig.server.cu.cuMemsetD8(device, 0, kSize), CUDA_SUCCESS);
  rig.launch_everywhere(rig.args(device, number(host.data()), kSize, 65536, 2), 2);
  EXPECT_EQ(rig.server.cu.cuStreamSynchronize(rig.streams[0]), CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_TRUE(host == before);
}

TEST(HostMemory, UnregisteringWaitsForCopies) {
  Emulated server;
  server.use(0);
  std::vector<uint8_t> host(kSize);
  ASSERT_EQ(server.cu.cuMemHostRegister(host.data(), kSize, 0), CUDA_SUCCESS);
  const CUdeviceptr device = server.device_memory(kSize);
  CUstream stream = server.stream();
  ASSERT_EQ(server.cu.cuMemsetD8Async(device, 0x61, kSize, stream), CUDA_SUCCESS);
  ASSERT_EQ(server.cu.cuMemcpyDtoHAsync(host.data(), device, kSize, stream), CUDA_SUCCESS);
  ASSERT_EQ(server.cu.cuMemHostUnregister(host.data()), CUDA_SUCCESS);
  for (size_t i = 0; i < kSize; ++i) ASSERT_EQ(host[i], 0x61) << i;
  EXPECT_EQ(server.cu.cuStreamQuery(stream), CUDA_SUCCESS);
}

TEST(Ipc, HandlesAreForOtherProcesses) {
  Emulated server;
  server.use(0);
  const auto get = server.symbol<decltype(&::cuIpcGetMemHandle)>("cuIpcGetMemHandle");
  const auto open = server.symbol<decltype(&::cuIpcOpenMemHandle)>("cuIpcOpenMemHandle_v2");
  const auto close = server.symbol<decltype(&::cuIpcCloseMemHandle)>("cuIpcCloseMemHandle");
  constexpr unsigned kLazy = CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS;
  const CUdeviceptr device = server.device_memory(kSize);
  CUipcMemHandle handle{};
  ASSERT_EQ(get(&handle, device), CUDA_SUCCESS);
  CUdeviceptr opened = 0;
  EXPECT_EQ(open(&opened, handle, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(open(&opened, handle, kLazy), CUDA_ERROR_INVALID_CONTEXT);
  EXPECT_EQ(open(&opened, CUipcMemHandle{}, kLazy), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(close(device), CUDA_ERROR_INVALID_VALUE);
  // The memory stays as it was; a handle outlives it, and is then good for nothing.
  EXPECT_EQ(server.cu.cuMemsetD8(device, 1, kSize), CUDA_SUCCESS);
  ASSERT_EQ(server.cu.cuMemFree(device), CUDA_SUCCESS);
  EXPECT_EQ(open(&opened, handle, kLazy), CUDA_ERROR_INVALID_HANDLE);
  // Only memory of cuMemAlloc.
  PoolCalls pools(server);
  MemoryCalls mappings(server);
  EXPECT_EQ(get(&handle, number(server.pinned_memory(16))), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(get(&handle, pools.allocated(kSize, nullptr)), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(get(&handle, managed_memory(server, kSize)), CUDA_ERROR_INVALID_VALUE);
}

}  // namespace
}  // namespace braid::emulator_test
