// Devices, contexts, memory, pointers: what calls say, right and wrong.
#include <csetjmp>
#include <csignal>
#include <cstring>

#include "fixture.h"
#include "support/set_variable.h"

namespace braid::emulator_test {
namespace {

TEST(Device, Attributes) {
  Emulated server;
  int value = 0;
  const auto attribute = [&](CUdevice_attribute which) {
    EXPECT_EQ(server.cu.cuDeviceGetAttribute(&value, which, 0), CUDA_SUCCESS) << which;
    return value;
  };
  EXPECT_EQ(attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR), 9);
  EXPECT_EQ(attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT), 132);
  EXPECT_EQ(attribute(CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING), 1);
  EXPECT_EQ(attribute(CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM), 1);
  EXPECT_EQ(attribute(CU_DEVICE_ATTRIBUTE_CAN_FLUSH_REMOTE_WRITES), 0);
  EXPECT_EQ(attribute(CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID), 0);
  EXPECT_EQ(attribute(CU_DEVICE_ATTRIBUTE_PCI_BUS_ID), 0x19);
  EXPECT_EQ(attribute(CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY), 1);
  EXPECT_EQ(attribute(CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED), 1);
  EXPECT_EQ(attribute(CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED), 1);
  EXPECT_EQ(attribute(CU_DEVICE_ATTRIBUTE_MEMPOOL_SUPPORTED_HANDLE_TYPES), 0);
  EXPECT_EQ(attribute(CU_DEVICE_ATTRIBUTE_IPC_EVENT_SUPPORTED), 0);
  EXPECT_EQ(server.cu.cuDeviceGetAttribute(&value, static_cast<CUdevice_attribute>(9999), 0),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(server.cu.cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_WARP_SIZE, 4),
            CUDA_ERROR_INVALID_DEVICE);
  char id[32];
  ASSERT_EQ(server.cu.cuDeviceGetPCIBusId(id, sizeof(id), 0), CUDA_SUCCESS);
  EXPECT_STREQ(id, "0000:19:00.0");
  const auto by_id = server.symbol<CUresult (*)(CUdevice*, const char*)>("cuDeviceGetByPCIBusId");
  CUdevice device = -1;
  EXPECT_EQ(by_id(&device, "0:3b:0.0"), CUDA_SUCCESS);
  EXPECT_EQ(device, 1);
  int atomics = 0;
  EXPECT_EQ(server.cu.cuDeviceGetP2PAttribute(
                &atomics, CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED, 0, 1),
            CUDA_SUCCESS);
  EXPECT_EQ(atomics, 1);
}

// GPUs that are for one process, or for none (cuda.h).
TEST(Device, ComputeModesAreReportedAndKept) {
  const test::SetVariable modes("EMULATED_COMPUTE_MODES", "0,3,2");
  Emulated server;
  int mode = -1;
  for (const auto& [device, expected] : {std::pair{0, CU_COMPUTEMODE_DEFAULT},
                                         {1, CU_COMPUTEMODE_EXCLUSIVE_PROCESS},
                                         {2, CU_COMPUTEMODE_PROHIBITED},
                                         {3, CU_COMPUTEMODE_DEFAULT}}) {
    ASSERT_EQ(server.cu.cuDeviceGetAttribute(&mode, CU_DEVICE_ATTRIBUTE_COMPUTE_MODE, device),
              CUDA_SUCCESS);
    EXPECT_EQ(mode, expected) << device;
    CUcontext context = nullptr;
    EXPECT_EQ(server.cu.cuDevicePrimaryCtxRetain(&context, device),
              expected == CU_COMPUTEMODE_PROHIBITED ? CUDA_ERROR_DEVICE_UNAVAILABLE : CUDA_SUCCESS)
        << device;
  }
}

TEST(Context, PrimaryContextsAreCounted) {
  Emulated server;
  unsigned flags = 9;
  int active = 9;
  ASSERT_EQ(server.cu.cuDevicePrimaryCtxGetState(0, &flags, &active), CUDA_SUCCESS);
  EXPECT_EQ(active, 0);
  EXPECT_EQ(server.cu.cuDevicePrimaryCtxRelease(0), CUDA_ERROR_INVALID_CONTEXT);
  CUcontext first = nullptr;
  CUcontext second = nullptr;
  ASSERT_EQ(server.cu.cuDevicePrimaryCtxRetain(&first, 0), CUDA_SUCCESS);
  ASSERT_EQ(server.cu.cuDevicePrimaryCtxRetain(&second, 0), CUDA_SUCCESS);
  EXPECT_EQ(first, second);
  ASSERT_EQ(server.cu.cuDevicePrimaryCtxRelease(0), CUDA_SUCCESS);
  ASSERT_EQ(server.cu.cuDevicePrimaryCtxGetState(0, &flags, &active), CUDA_SUCCESS);
  EXPECT_EQ(active, 1);
  ASSERT_EQ(server.cu.cuDevicePrimaryCtxRelease(0), CUDA_SUCCESS);
  ASSERT_EQ(server.cu.cuDevicePrimaryCtxGetState(0, &flags, &active), CUDA_SUCCESS);
  EXPECT_EQ(active, 0);
}

TEST(Context, TheStackOfCurrentContexts) {
  Emulated server;
  const auto create = server.symbol<CUresult (*)(CUcontext*, unsigned, CUdevice)>("cuCtxCreate_v2");
  const auto destroy = server.symbol<CUresult (*)(CUcontext)>("cuCtxDestroy_v2");
  CUcontext at = reinterpret_cast<CUcontext>(1);
  ASSERT_EQ(server.cu.cuCtxGetCurrent(&at), CUDA_SUCCESS);
  EXPECT_EQ(at, nullptr);
  CUdeviceptr memory = 0;
  EXPECT_EQ(server.cu.cuMemAlloc(&memory, 4), CUDA_ERROR_INVALID_CONTEXT);
  CUcontext primary = server.use(1);
  CUcontext made = nullptr;
  ASSERT_EQ(create(&made, 0, 0), CUDA_SUCCESS);
  CUdevice device = -1;
  ASSERT_EQ(server.cu.cuCtxGetDevice(&device), CUDA_SUCCESS);
  EXPECT_EQ(device, 0);
  memory = server.device_memory(4);
  CUstream stream = server.stream();
  ASSERT_EQ(destroy(made), CUDA_SUCCESS);
  ASSERT_EQ(server.cu.cuCtxGetCurrent(&at), CUDA_SUCCESS);
  EXPECT_EQ(at, primary);
  EXPECT_EQ(server.cu.cuStreamQuery(stream), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(server.cu.cuMemFree(memory), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(server.cu.cuCtxPushCurrent(made), CUDA_ERROR_CONTEXT_IS_DESTROYED);
  ASSERT_EQ(server.cu.cuCtxPushCurrent(primary), CUDA_SUCCESS);
  ASSERT_EQ(server.cu.cuCtxPopCurrent(&at), CUDA_SUCCESS);
  ASSERT_EQ(server.cu.cuCtxPopCurrent(&at), CUDA_SUCCESS);
  EXPECT_EQ(server.cu.cuCtxPopCurrent(&at), CUDA_ERROR_INVALID_CONTEXT);
}

TEST(Context, EndsWithTheLastDetaching) {
  Emulated server;
  const auto create = server.symbol<CUresult (*)(CUcontext*, unsigned, CUdevice)>("cuCtxCreate_v2");
  const auto attach = server.symbol<CUresult (*)(CUcontext*, unsigned)>("cuCtxAttach");
  const auto detach = server.symbol<CUresult (*)(CUcontext)>("cuCtxDetach");
  CUcontext attached = nullptr;
  EXPECT_EQ(attach(&attached, 0), CUDA_ERROR_INVALID_CONTEXT) << "none is current";
  CUcontext primary = server.use(0);
  EXPECT_EQ(detach(primary), CUDA_SUCCESS);
  EXPECT_EQ(server.cu.cuCtxSynchronize(), CUDA_SUCCESS) << "it has not ended";
  CUcontext made = nullptr;
  ASSERT_EQ(create(&made, 0, 0), CUDA_SUCCESS);
  EXPECT_EQ(attach(&attached, 1), CUDA_ERROR_INVALID_VALUE);
  ASSERT_EQ(attach(&attached, 0), CUDA_SUCCESS);
  EXPECT_EQ(attached, made);
  EXPECT_EQ(detach(primary), CUDA_ERROR_INVALID_CONTEXT) << "not the current one";
  ASSERT_EQ(detach(made), CUDA_SUCCESS);
  EXPECT_EQ(server.cu.cuCtxSynchronize(), CUDA_SUCCESS);
  ASSERT_EQ(detach(made), CUDA_SUCCESS);
  EXPECT_EQ(server.cu.cuCtxPushCurrent(made), CUDA_ERROR_CONTEXT_IS_DESTROYED);
}

TEST(Context, PeerAccessErrors) {
  Emulated server;
  const auto disable = server.symbol<CUresult (*)(CUcontext)>("cuCtxDisablePeerAccess");
  CUcontext one = server.use(1);
  CUcontext zero = server.use(0);
  EXPECT_EQ(disable(one), CUDA_ERROR_PEER_ACCESS_NOT_ENABLED);
  EXPECT_EQ(server.cu.cuCtxEnablePeerAccess(zero, 0), CUDA_ERROR_INVALID_CONTEXT);
  EXPECT_EQ(server.cu.cuCtxEnablePeerAccess(one, 1), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(server.cu.cuCtxEnablePeerAccess(one, 0), CUDA_SUCCESS);
  EXPECT_EQ(server.cu.cuCtxEnablePeerAccess(one, 0), CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED);
  EXPECT_EQ(disable(one), CUDA_SUCCESS);
  EXPECT_EQ(disable(one), CUDA_ERROR_PEER_ACCESS_NOT_ENABLED);
}

TEST(Memory, CapacityIsEnforcedAndGivenBack) {
  Emulated server;
  server.use(0);
  size_t free_before = 0;
  size_t total = 0;
  ASSERT_EQ(server.cu.cuMemGetInfo(&free_before, &total), CUDA_SUCCESS);
  EXPECT_LT(free_before, total);  // the context's own
  CUdeviceptr big = 0;
  EXPECT_EQ(server.cu.cuMemAlloc(&big, total), CUDA_ERROR_OUT_OF_MEMORY);
  std::vector<CUdeviceptr> all;
  const size_t piece = free_before / 5;
  for (int i = 0; i < 4; ++i) all.push_back(server.device_memory(piece));
  EXPECT_EQ(server.cu.cuMemAlloc(&big, 2 * piece), CUDA_ERROR_OUT_OF_MEMORY);
  for (const CUdeviceptr memory : all) ASSERT_EQ(server.cu.cuMemFree(memory), CUDA_SUCCESS);
  size_t free_after = 0;
  ASSERT_EQ(server.cu.cuMemGetInfo(&free_after, &total), CUDA_SUCCESS);
  EXPECT_EQ(free_after, free_before);
  EXPECT_EQ(server.cu.cuMemFree(all[0]), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(server.cu.cuMemFree(0), CUDA_SUCCESS);
  EXPECT_EQ(server.cu.cuMemAlloc(&big, 0), CUDA_ERROR_INVALID_VALUE);
}

TEST(Memory, RandomAllocationsNeverOverlap) {
  Emulated server;
  server.use(0);
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937_64 random(seed);
  std::map<CUdeviceptr, size_t> held;
  for (int i = 0; i < 2000; ++i) {
    if (!held.empty() && random() % 2 == 0) {
      auto at = std::next(held.begin(), static_cast<long>(random() % held.size()));
      ASSERT_EQ(server.cu.cuMemFree(at->first), CUDA_SUCCESS);
      held.erase(at);
      continue;
    }
    const size_t size = 1 + random() % (random() % 2 == 0 ? 5000 : 50'000'000);
    const CUdeviceptr memory = server.device_memory(size);
    EXPECT_EQ(memory % 256, 0u);
    const auto next = held.lower_bound(memory);
    if (next != held.end()) {
      ASSERT_LE(memory + size, next->first);
    }
    if (next != held.begin()) {
      const auto before = std::prev(next);
      ASSERT_LE(before->first + before->second, memory);
    }
    held[memory] = size;
  }
}

// A device pointer is not the CPU's to follow.
sigjmp_buf resume;
TEST(Memory, DereferencingADevicePointerFaults) {
  Emulated server;
  server.use(0);
  const CUdeviceptr memory = server.device_memory(4096);
  struct sigaction action {};
  action.sa_handler = [](int) { siglongjmp(resume, 1); };
  sigaction(SIGSEGV, &action, nullptr);
  volatile bool faulted = false;
  if (sigsetjmp(resume, 1) == 0)
    *reinterpret_cast<volatile char*>(memory) = 1;
  else
    faulted = true;
  signal(SIGSEGV, SIG_DFL);
  EXPECT_TRUE(faulted);
}

TEST(Memory, FreeWaitsForWork) {
  Emulated server;
  server.use(0);
  uint8_t* host = server.pinned_memory(1 << 20);
  const CUdeviceptr memory = server.device_memory(1 << 20);
  CUstream stream = server.stream();
  ASSERT_EQ(server.cu.cuMemsetD8Async(memory, 9, 1 << 20, stream), CUDA_SUCCESS);
  ASSERT_EQ(server.cu.cuMemcpyDtoHAsync(host, memory, 1 << 20, stream), CUDA_SUCCESS);
  ASSERT_EQ(server.cu.cuMemFree(memory), CUDA_SUCCESS);
  EXPECT_EQ(host[(1 << 20) - 1], 9);
  EXPECT_EQ(server.cu.cuStreamQuery(stream), CUDA_SUCCESS);
}

TEST(Pointer, Attributes) {
  Emulated server;
  server.use(1);
  CUcontext context = server.use(0);
  const CUdeviceptr device = server.device_memory(100);
  uint8_t* pinned = server.pinned_memory(100);
  std::vector<uint8_t> plain(100);
  unsigned type = 0;
  EXPECT_EQ(server.cu.cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, device + 99),
            CUDA_SUCCESS);
  EXPECT_EQ(type, static_cast<unsigned>(CU_MEMORYTYPE_DEVICE));
  const auto number = [](void* at) { return reinterpret_cast<CUdeviceptr>(at); };
  EXPECT_EQ(
      server.cu.cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, number(pinned + 50)),
      CUDA_SUCCESS);
  EXPECT_EQ(type, static_cast<unsigned>(CU_MEMORYTYPE_HOST));
  EXPECT_EQ(server.cu.cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                                            number(plain.data())),
            CUDA_ERROR_INVALID_VALUE);
  void* host = nullptr;
  EXPECT_EQ(server.cu.cuPointerGetAttribute(&host, CU_POINTER_ATTRIBUTE_HOST_POINTER, device),
            CUDA_ERROR_INVALID_VALUE);

  CUcontext owner = nullptr;
  int ordinal = -1;
  int managed = -1;
  CUdeviceptr start = 1;
  size_t size = 1;
  CUpointer_attribute which[] = {
      CU_POINTER_ATTRIBUTE_CONTEXT,          CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
      CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,   CU_POINTER_ATTRIBUTE_IS_MANAGED,
      CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, CU_POINTER_ATTRIBUTE_RANGE_SIZE,
      CU_POINTER_ATTRIBUTE_HOST_POINTER};
  void* data[] = {&owner, &type, &ordinal, &managed, &start, &size, &host};
  ASSERT_EQ(server.cu.cuPointerGetAttributes(7, which, data, device + 10), CUDA_SUCCESS);
  EXPECT_EQ(owner, context);
  EXPECT_EQ(ordinal, 0);
  EXPECT_EQ(managed, 0);
  EXPECT_EQ(start, device);
  EXPECT_EQ(size, 100u);
  EXPECT_EQ(host, nullptr);
  ASSERT_EQ(server.cu.cuPointerGetAttributes(7, which, data, number(plain.data())), CUDA_SUCCESS);
  EXPECT_EQ(owner, nullptr);
  EXPECT_EQ(type, 0u);
  EXPECT_EQ(ordinal, -2);
  EXPECT_EQ(size, 0u);
}

}  // namespace
}  // namespace braid::emulator_test
