// Virtual memory management: memory without addresses, addresses without memory, and who may touch
// what once the two are joined.
#include <fcntl.h>
#include <unistd.h>

#include <cstring>

#include "memory_calls.h"
#include "pull_rig.h"

namespace braid::emulator_test {
namespace {

constexpr size_t kPiece = 2u << 20;  // what granularity asks for

// A reserved range with as many pieces mapped as GPUs are given, each piece on its GPU and open to
// that GPU alone.
struct Mapped {
  Mapped(Emulated& server, const std::vector<int>& gpus) : calls(server) {
    EXPECT_EQ(calls.reserve(&address, gpus.size() * kPiece, 0, 0, 0), CUDA_SUCCESS);
    for (size_t i = 0; i < gpus.size(); ++i) {
      handles.push_back(calls.memory_on(gpus[i], kPiece));
      EXPECT_EQ(calls.map(piece(i), kPiece, 0, handles[i], 0), CUDA_SUCCESS);
      allow(i, gpus[i]);
    }
  }
  CUdeviceptr piece(size_t i) const { return address + i * kPiece; }
  void allow(size_t i, int gpu, CUmemAccess_flags flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE) {
    const CUmemAccessDesc wanted = access_by(gpu, flags);
    EXPECT_EQ(calls.set_access(piece(i), kPiece, &wanted, 1), CUDA_SUCCESS);
  }

  MemoryCalls calls;
  CUdeviceptr address = 0;
  std::vector<CUmemGenericAllocationHandle> handles;
};

TEST(VirtualMemory, CopiesCrossFromOneMappingIntoTheNext) {
  Emulated server;
  server.use(1);
  server.use(0);
  Mapped mapped(server, {0, 1, 0});
  mapped.allow(1, 0);
  const size_t size = 3 * kPiece - 11;
  const auto data = random_bytes(size, 3);
  uint8_t* pinned = server.pinned_memory(size);
  std::memcpy(pinned, data.data(), size);
  CUstream stream = server.stream();
  ASSERT_EQ(server.cu.cuMemcpyHtoDAsync(mapped.address + 7, pinned, size, stream), CUDA_SUCCESS);
  ASSERT_EQ(server.cu.cuStreamSynchronize(stream), CUDA_SUCCESS);
  std::memset(pinned, 0, size);
  ASSERT_EQ(server.cu.cuMemcpyDtoHAsync(pinned, mapped.address + 7, size, stream), CUDA_SUCCESS);
  ASSERT_EQ(server.cu.cuStreamSynchronize(stream), CUDA_SUCCESS);
  EXPECT_EQ(std::memcmp(pinned, data.data(), size), 0);
  // A fill across the border.
  ASSERT_EQ(server.cu.cuMemsetD8(mapped.piece(1) - 4, 0x77, 8), CUDA_SUCCESS);
  uint8_t around[10] = {};
  ASSERT_EQ(server.cu.cuMemcpyDtoH(around, mapped.piece(1) - 5, 10), CUDA_SUCCESS);
  EXPECT_EQ(around[0], data[kPiece - 12]);
  for (int i = 1; i < 9; ++i) EXPECT_EQ(around[i], 0x77);
  EXPECT_EQ(around[9], data[kPiece - 3]);
  // The range ends where the mappings end.
  EXPECT_EQ(server.cu.cuMemcpyHtoD(mapped.address, data.data(), 3 * kPiece + 1),
            CUDA_ERROR_INVALID_VALUE);
}

TEST(VirtualMemory, ACopyThatTouchesOneForbiddenMappingFaults) {
  Emulated server("h200x4", kFaultsStay);
  server.use(1);
  server.use(0);
  Mapped mapped(server, {0, 1});
  uint8_t* pinned = server.pinned_memory(2 * kPiece);
  CUstream stream = server.stream();
  ASSERT_EQ(server.cu.cuMemcpyHtoDAsync(mapped.address, pinned, kPiece, stream), CUDA_SUCCESS);
  ASSERT_EQ(server.cu.cuStreamSynchronize(stream), CUDA_SUCCESS);
  // The last byte is GPU 1's, and the stream is GPU 0's. Found out when it runs, and sticky.
  ASSERT_EQ(server.cu.cuMemcpyHtoDAsync(mapped.address, pinned, kPiece + 1, stream), CUDA_SUCCESS);
  EXPECT_EQ(server.cu.cuStreamSynchronize(stream), CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_EQ(server.cu.cuCtxSynchronize(), CUDA_ERROR_ILLEGAL_ADDRESS);
  server.use(1);
  EXPECT_EQ(server.cu.cuMemsetD8(mapped.piece(1), 1, kPiece), CUDA_SUCCESS);
  EXPECT_EQ(server.cu.cuCtxSynchronize(), CUDA_SUCCESS);
}

TEST(VirtualMemory, PeerCopiesTouchEachEndFromItsOwnContext) {
  Emulated server;
  CUcontext one = server.use(1);
  CUcontext zero = server.use(0);
  Mapped mapped(server, {0, 1});
  const auto data = random_bytes(kPiece, 8);
  ASSERT_EQ(server.cu.cuMemcpyHtoD(mapped.piece(0), data.data(), kPiece), CUDA_SUCCESS);
  CUstream stream = server.stream();
  ASSERT_EQ(
      server.cu.cuMemcpyPeerAsync(mapped.piece(1), one, mapped.piece(0), zero, kPiece, stream),
      CUDA_SUCCESS);
  ASSERT_EQ(server.cu.cuStreamSynchronize(stream), CUDA_SUCCESS);
  server.use(1);
  std::vector<uint8_t> back(kPiece);
  ASSERT_EQ(server.cu.cuMemcpyDtoH(back.data(), mapped.piece(1), kPiece), CUDA_SUCCESS);
  EXPECT_TRUE(back == data);
}

TEST(VirtualMemory, ReadAccessReadsAndFaultsOnWrites) {
  Emulated server;
  server.use(1);
  Mapped mapped(server, {1});
  ASSERT_EQ(server.cu.cuMemsetD8(mapped.address, 0x21, kPiece), CUDA_SUCCESS);
  ASSERT_EQ(server.cu.cuCtxSynchronize(), CUDA_SUCCESS);
  server.use(0);
  mapped.allow(0, 0, CU_MEM_ACCESS_FLAGS_PROT_READ);
  uint8_t byte = 0;
  ASSERT_EQ(server.cu.cuMemcpyDtoH(&byte, mapped.address + 5, 1), CUDA_SUCCESS);
  EXPECT_EQ(byte, 0x21);
  byte = 9;
  EXPECT_EQ(server.cu.cuMemcpyHtoD(mapped.address, &byte, 1), CUDA_SUCCESS);
  EXPECT_EQ(server.cu.cuCtxSynchronize(), CUDA_ERROR_ILLEGAL_ADDRESS);
}

// GPU 1 pulls into two mappings of GPU 0's memory, the first of which it may touch.
void pull_into_two_mappings(bool second_is_granted) {
  Rig rig("h200x4", 2, 0, kFaultsStay);
  rig.enable_peers();  // of no use for mappings
  Mapped mapped(rig.server, {0, 0});
  mapped.allow(0, 1);
  if (second_is_granted) mapped.allow(1, 1);
  constexpr size_t kSlice = kPiece / 4 * 3;  // the second crosses the border
  constexpr size_t kSize = 2 * kPiece;
  const auto data = random_bytes(kSize, 4);
  uint8_t* host = rig.server.pinned_memory(kSize);
  std::memcpy(host, data.data(), kSize);
  PullArgs args = rig.args(reinterpret_cast<uint64_t>(host), mapped.address, kSize, kSlice, 1);
  args.total_blocks = 1;
  rig.server.use(1);
  ASSERT_EQ(rig.launch(args, 1, 1, 1), CUDA_SUCCESS);
  EXPECT_EQ(rig.server.cu.cuStreamSynchronize(rig.streams[1]),
            second_is_granted ? CUDA_SUCCESS : CUDA_ERROR_ILLEGAL_ADDRESS);
  rig.server.use(0);
  std::vector<uint8_t> back(kSize);
  ASSERT_EQ(rig.server.cu.cuMemcpyDtoH(back.data(), mapped.address, kSize), CUDA_SUCCESS);
  const size_t landed = second_is_granted ? kSize : kSlice;
  EXPECT_EQ(std::memcmp(back.data(), data.data(), landed), 0);
  for (size_t i = landed; i < kSize; ++i) ASSERT_EQ(back[i], 0) << i;
}

TEST(VirtualMemory, KernelsCrossMappingsThatTheyMayTouch) { pull_into_two_mappings(true); }
TEST(VirtualMemory, KernelsFaultOnMappingsThatTheyMayNotTouch) { pull_into_two_mappings(false); }

TEST(VirtualMemory, WorkThatFindsItsMemoryUnmappedFaults) {
  Emulated server;
  server.use(0);
  Mapped mapped(server, {0, 0});
  uint8_t* pinned = server.pinned_memory(2 * kPiece);
  CUstream stream = server.stream();
  ASSERT_EQ(server.cu.cuMemcpyHtoDAsync(mapped.address, pinned, 2 * kPiece, stream), CUDA_SUCCESS);
  ASSERT_EQ(mapped.calls.unmap(mapped.piece(1), kPiece), CUDA_SUCCESS);
  EXPECT_EQ(server.cu.cuStreamSynchronize(stream), CUDA_ERROR_ILLEGAL_ADDRESS);
}

TEST(VirtualMemory, AStreamThatWaitsForAValueThatIsUnmappedFaults) {
  Emulated server;
  server.use(0);
  Mapped mapped(server, {0});
  ASSERT_EQ(server.cu.cuMemsetD8(mapped.address, 0, 64), CUDA_SUCCESS);
  ASSERT_EQ(server.cu.cuCtxSynchronize(), CUDA_SUCCESS);
  CUstream stream = server.stream();
  ASSERT_EQ(server.cu.cuStreamWaitValue32(stream, mapped.address + 4, 1, CU_STREAM_WAIT_VALUE_GEQ),
            CUDA_SUCCESS);
  EXPECT_EQ(server.cu.cuStreamQuery(stream), CUDA_ERROR_NOT_READY);
  ASSERT_EQ(mapped.calls.unmap(mapped.address, kPiece), CUDA_SUCCESS);
  EXPECT_EQ(server.cu.cuStreamSynchronize(stream), CUDA_ERROR_ILLEGAL_ADDRESS);
}

TEST(VirtualMemory, MemoryIsThereUntilItsLastHandleAndMappingAreGone) {
  Emulated server;
  server.use(0);
  size_t before = 0;
  size_t after = 0;
  ASSERT_EQ(server.cu.cuMemGetInfo(&before, nullptr), CUDA_SUCCESS);
  Mapped mapped(server, {0});
  ASSERT_EQ(server.cu.cuMemGetInfo(&after, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(after, before - kPiece);
  MemoryCalls& calls = mapped.calls;
  ASSERT_EQ(server.cu.cuMemsetD8(mapped.address, 0x5c, kPiece), CUDA_SUCCESS);
  ASSERT_EQ(server.cu.cuCtxSynchronize(), CUDA_SUCCESS);
  CUmemGenericAllocationHandle retained = 0;
  ASSERT_EQ(calls.retain(&retained, reinterpret_cast<void*>(mapped.address + 99)), CUDA_SUCCESS);
  EXPECT_EQ(retained, mapped.handles[0]);
  ASSERT_EQ(calls.release(retained), CUDA_SUCCESS);
  ASSERT_EQ(calls.release(retained), CUDA_SUCCESS);
  EXPECT_EQ(calls.release(retained), CUDA_ERROR_INVALID_VALUE);
  // The mapping still holds it, and can give the handle back.
  ASSERT_EQ(calls.retain(&retained, reinterpret_cast<void*>(mapped.address)), CUDA_SUCCESS);
  EXPECT_EQ(calls.address_free(mapped.address, kPiece), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(calls.unmap(mapped.address, kPiece / 2), CUDA_ERROR_INVALID_VALUE);
  ASSERT_EQ(calls.unmap(mapped.address, kPiece), CUDA_SUCCESS);
  EXPECT_EQ(calls.unmap(mapped.address, kPiece), CUDA_ERROR_INVALID_VALUE);
  uint8_t byte = 0;
  EXPECT_EQ(server.cu.cuMemcpyDtoH(&byte, mapped.address, 1), CUDA_ERROR_INVALID_VALUE);
  // Mapped anew, the bytes are the same, and access must be granted anew.
  ASSERT_EQ(calls.map(mapped.address, kPiece, 0, retained, 0), CUDA_SUCCESS);
  unsigned long long flags = 9;
  const CUmemLocation zero = on_gpu(0);
  ASSERT_EQ(calls.get_access(&flags, &zero, mapped.address), CUDA_SUCCESS);
  EXPECT_EQ(flags, static_cast<unsigned long long>(CU_MEM_ACCESS_FLAGS_PROT_NONE));
  mapped.allow(0, 0);
  ASSERT_EQ(calls.get_access(&flags, &zero, mapped.address), CUDA_SUCCESS);
  EXPECT_EQ(flags, static_cast<unsigned long long>(CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
  ASSERT_EQ(server.cu.cuMemcpyDtoH(&byte, mapped.address + 123, 1), CUDA_SUCCESS);
  EXPECT_EQ(byte, 0x5c);
  ASSERT_EQ(calls.release(retained), CUDA_SUCCESS);
  ASSERT_EQ(calls.unmap(mapped.address, kPiece), CUDA_SUCCESS);
  ASSERT_EQ(server.cu.cuMemGetInfo(&after, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(after, before);
  EXPECT_EQ(calls.address_free(mapped.address, kPiece / 2), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(calls.address_free(mapped.address, kPiece), CUDA_SUCCESS);
  EXPECT_EQ(calls.address_free(mapped.address, kPiece), CUDA_ERROR_INVALID_VALUE);
}

TEST(VirtualMemory, SharedByFileDescriptor) {
  Emulated server;
  server.use(0);
  MemoryCalls calls(server);
  const CUmemGenericAllocationHandle made =
      calls.memory_on(0, kPiece, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
  int file = -1;
  ASSERT_EQ(calls.export_handle(&file, made, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
            CUDA_SUCCESS);
  ASSERT_GE(file, 0);
  CUmemGenericAllocationHandle imported = 0;
  const auto as_pointer = [](int number) { return reinterpret_cast<void*>(intptr_t{number}); };
  ASSERT_EQ(
      calls.import_handle(&imported, as_pointer(file), CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR),
      CUDA_SUCCESS);
  close(file);
  CUmemAllocationProp properties{};
  ASSERT_EQ(calls.get_properties(&properties, imported), CUDA_SUCCESS);
  EXPECT_EQ(properties.location.type, CU_MEM_LOCATION_TYPE_DEVICE);
  EXPECT_EQ(properties.requestedHandleTypes, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
  // Two addresses, one memory.
  CUdeviceptr address = 0;
  ASSERT_EQ(calls.reserve(&address, 2 * kPiece, 0, 0, 0), CUDA_SUCCESS);
  ASSERT_EQ(calls.map(address, kPiece, 0, made, 0), CUDA_SUCCESS);
  ASSERT_EQ(calls.map(address + kPiece, kPiece, 0, imported, 0), CUDA_SUCCESS);
  const CUmemAccessDesc wanted = access_by(0);
  ASSERT_EQ(calls.set_access(address, 2 * kPiece, &wanted, 1), CUDA_SUCCESS);
  const auto data = random_bytes(kPiece, 6);
  ASSERT_EQ(server.cu.cuMemcpyHtoD(address, data.data(), kPiece), CUDA_SUCCESS);
  std::vector<uint8_t> back(kPiece);
  ASSERT_EQ(server.cu.cuMemcpyDtoH(back.data(), address + kPiece, kPiece), CUDA_SUCCESS);
  EXPECT_TRUE(back == data);
  // Each handle that was returned is released once.
  EXPECT_EQ(calls.release(made), CUDA_SUCCESS);
  EXPECT_EQ(calls.release(imported), CUDA_SUCCESS);
  // Only what was made to be shared can be, and only files of the driver's can be imported.
  const CUmemGenericAllocationHandle closed = calls.memory_on(0, kPiece);
  EXPECT_EQ(calls.export_handle(&file, closed, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
            CUDA_ERROR_INVALID_VALUE);
  const int null = open("/dev/null", O_RDWR);
  for (const int wrong : {null, -1, 987654})
    EXPECT_EQ(
        calls.import_handle(&imported, as_pointer(wrong), CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR),
        CUDA_ERROR_INVALID_VALUE);
  close(null);
}

TEST(VirtualMemory, HostMemoryIsSharedWithTheCpu) {
  Emulated server;
  server.use(0);
  MemoryCalls calls(server);
  CUmemAllocationProp wanted{};
  wanted.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  wanted.location.type = CU_MEM_LOCATION_TYPE_HOST_NUMA;
  wanted.location.id = 0;
  CUmemGenericAllocationHandle handle = 0;
  ASSERT_EQ(calls.create(&handle, kPiece, &wanted, 0), CUDA_SUCCESS);
  CUdeviceptr address = 0;
  ASSERT_EQ(calls.reserve(&address, kPiece, 0, 0, 0), CUDA_SUCCESS);
  ASSERT_EQ(calls.map(address, kPiece, 0, handle, 0), CUDA_SUCCESS);
  const CUdeviceptr device = server.device_memory(kPiece);
  uint8_t* bytes = reinterpret_cast<uint8_t*>(address);
  EXPECT_EQ(server.cu.cuMemcpyHtoD(device, bytes, kPiece), CUDA_ERROR_INVALID_VALUE);
  CUmemAccessDesc both[] = {access_by(0), access_by(0)};
  both[1].location = wanted.location;
  ASSERT_EQ(calls.set_access(address, kPiece, both, 2), CUDA_SUCCESS);
  const auto data = random_bytes(kPiece, 12);
  std::memcpy(bytes, data.data(), kPiece);
  ASSERT_EQ(server.cu.cuMemcpyHtoD(device, bytes, kPiece), CUDA_SUCCESS);
  std::memset(bytes, 0, kPiece);
  ASSERT_EQ(server.cu.cuMemcpyDtoH(bytes, device, kPiece), CUDA_SUCCESS);
  EXPECT_EQ(std::memcmp(bytes, data.data(), kPiece), 0);
  // Memory of a GPU cannot be opened to the CPU.
  Mapped on_gpu_0(server, {0});
  EXPECT_EQ(calls.set_access(on_gpu_0.address, kPiece, both + 1, 1), CUDA_ERROR_INVALID_VALUE);
}

TEST(VirtualMemory, PointerAttributes) {
  Emulated server;
  CUcontext one = server.use(1);
  server.use(0);
  MemoryCalls calls(server);
  CUdeviceptr reserved = 0;
  ASSERT_EQ(calls.reserve(&reserved, 3 * kPiece, 0, 0, 0), CUDA_SUCCESS);
  const auto handle = calls.memory_on(1, kPiece, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
  const CUdeviceptr mapped = reserved + kPiece;
  ASSERT_EQ(calls.map(mapped, kPiece, 0, handle, 0), CUDA_SUCCESS);
  const CUmemAccessDesc wanted = access_by(1);
  ASSERT_EQ(calls.set_access(mapped, kPiece, &wanted, 1), CUDA_SUCCESS);

  const CUdeviceptr inside = mapped + 1000;
  PointerFacts facts = facts_of(server, inside);
  EXPECT_EQ(facts.context, nullptr);
  EXPECT_EQ(facts.pool, nullptr);
  EXPECT_EQ(facts.memory_type, static_cast<unsigned>(CU_MEMORYTYPE_DEVICE));
  EXPECT_EQ(facts.device, 1);
  EXPECT_EQ(facts.ipc_capable, 0);
  EXPECT_EQ(facts.managed, 0);
  EXPECT_EQ(facts.mapped, 1);
  EXPECT_EQ(facts.range_start, reserved);
  EXPECT_EQ(facts.range_bytes, 3 * kPiece);
  EXPECT_EQ(facts.mapping_start, mapped);
  EXPECT_EQ(facts.mapping_bytes, kPiece);
  EXPECT_EQ(facts.handle_types, uint64_t{CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR});
  // Access is that of the current context's GPU.
  EXPECT_EQ(facts.access, static_cast<unsigned>(CU_POINTER_ATTRIBUTE_ACCESS_FLAG_NONE));
  ASSERT_EQ(server.cu.cuCtxSetCurrent(one), CUDA_SUCCESS);
  EXPECT_EQ(facts_of(server, inside).access,
            static_cast<unsigned>(CU_POINTER_ATTRIBUTE_ACCESS_FLAG_READWRITE));
  CUdeviceptr base = 0;
  size_t size = 0;
  const auto range =
      server.symbol<CUresult (*)(CUdeviceptr*, size_t*, CUdeviceptr)>("cuMemGetAddressRange_v2");
  ASSERT_EQ(range(&base, &size, inside), CUDA_SUCCESS);
  EXPECT_EQ(base, mapped);
  EXPECT_EQ(size, kPiece);
  // Reserved, but nothing mapped.
  facts = facts_of(server, reserved + 5);
  EXPECT_EQ(facts.mapped, 0);
  EXPECT_EQ(facts.range_bytes, 3 * kPiece);
  EXPECT_EQ(facts.memory_type, 0u);
}

TEST(VirtualMemory, WrongArgumentsAreRefused) {
  Emulated server;
  server.use(0);
  MemoryCalls calls(server);
  CUdeviceptr address = 0;
  EXPECT_EQ(calls.reserve(&address, 0, 0, 0, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(calls.reserve(&address, kPiece + 1, 0, 0, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(calls.reserve(&address, kPiece, 3, 0, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(calls.reserve(&address, kPiece, 0, 0, 1), CUDA_ERROR_INVALID_VALUE);
  ASSERT_EQ(calls.reserve(&address, kPiece, size_t{1} << 30, 0, 0), CUDA_SUCCESS);
  EXPECT_EQ(address % (size_t{1} << 30), 0u);

  CUmemGenericAllocationHandle handle = 0;
  CUmemAllocationProp wanted{};
  EXPECT_EQ(calls.create(&handle, kPiece, &wanted, 0), CUDA_ERROR_INVALID_VALUE);
  wanted.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  wanted.location = on_gpu(77);
  EXPECT_EQ(calls.create(&handle, kPiece, &wanted, 0), CUDA_ERROR_INVALID_DEVICE);
  wanted.location = on_gpu(0);
  EXPECT_EQ(calls.create(&handle, kPiece / 2, &wanted, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(calls.create(&handle, size_t{1} << 45, &wanted, 0), CUDA_ERROR_OUT_OF_MEMORY);
  size_t granularity = 0;
  ASSERT_EQ(calls.granularity(&granularity, &wanted, CU_MEM_ALLOC_GRANULARITY_MINIMUM),
            CUDA_SUCCESS);
  EXPECT_EQ(granularity, kPiece);

  handle = calls.memory_on(0, 2 * kPiece);
  EXPECT_EQ(calls.map(address, 2 * kPiece, 0, handle, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(calls.map(address + kPiece, kPiece, 0, handle, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(calls.map(address, kPiece, kPiece, handle, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(calls.map(address, kPiece, 0, handle + 5, 0), CUDA_ERROR_INVALID_VALUE);
  CUmemAccessDesc access = access_by(0);
  EXPECT_EQ(calls.set_access(address, kPiece, &access, 1), CUDA_ERROR_INVALID_VALUE);
  ASSERT_EQ(calls.map(address, kPiece, 0, handle, 0), CUDA_SUCCESS);
  EXPECT_EQ(calls.map(address, kPiece, 0, handle, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(calls.set_access(address, kPiece / 2, &access, 1), CUDA_ERROR_INVALID_VALUE);
  access.location.id = 4;
  EXPECT_EQ(calls.set_access(address, kPiece, &access, 1), CUDA_ERROR_INVALID_DEVICE);
  EXPECT_EQ(server.cu.cuMemFree(address), CUDA_ERROR_INVALID_VALUE);
}

}  // namespace
}  // namespace braid::emulator_test
