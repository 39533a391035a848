// Launches of braid_pull: every byte arrives once, whoever carries it; relays yield; the transfer
// is left as the contract in cuda/kernels/pull.h says.
#include <cstddef>
#include <cstring>

#include "process_test.h"
#include "pull_rig.h"
#include "support/cpu_time.h"

namespace braid::emulator_test {
namespace {

TEST(Pull, EveryByteArrivesOnceOverAllGpus) {
  Rig rig("h20x8", 8, 3);
  rig.enable_peers();
  constexpr size_t kSize = (8u << 20) + 777;
  const auto data = random_bytes(kSize, 5);
  uint8_t* host = rig.server.pinned_memory(kSize);
  CUdeviceptr device = rig.server.device_memory(kSize + 2);
  std::memcpy(host, data.data(), kSize);
  uint32_t done = 0;
  for (const bool up : {true, false}) {
    ASSERT_EQ(rig.server.cu.cuMemsetD8(device, up ? 0xcc : 0xdd, 1), CUDA_SUCCESS);
    if (!up) std::memset(host, 0, kSize);
    const uint64_t host_address = reinterpret_cast<uint64_t>(host);
    const PullArgs args = up ? rig.args(host_address, device + 1, kSize, 65536, 4)
                             : rig.args(device + 1, host_address, kSize, 65536, 4);
    rig.launch_everywhere(args, 4);
    rig.synchronize();
    std::vector<uint8_t> back(kSize + 2);
    ASSERT_EQ(rig.server.cu.cuMemcpyDtoH(back.data(), device, kSize + 2), CUDA_SUCCESS);
    EXPECT_TRUE(std::memcmp(back.data() + 1, data.data(), kSize) == 0);
    EXPECT_TRUE(std::memcmp(host, data.data(), kSize) == 0);
    // Counters are reset but for `done`; the report says who carried what.
    done += args.slice_count;
    const TransferCounters words = rig.read_counters();
    EXPECT_EQ(words.next, 0u);
    EXPECT_EQ(words.left, 0u);
    EXPECT_EQ(words.done, done);
    EXPECT_EQ(rig.report->generation, args.generation);
    uint32_t total = 0;
    for (uint32_t path = 0; path < 8; ++path) {
      EXPECT_GT(rig.report->slices[path], 0u) << path;
      EXPECT_EQ(words.slices[path], 0u);
      total += rig.report->slices[path];
    }
    EXPECT_EQ(total, args.slice_count);
  }
}

TEST(Pull, AGibibyteInSmallSlicesSimulatesQuickly) {
  Rig rig("h20x8", 8, 0);
  rig.enable_peers();
  constexpr size_t kSize = 1u << 30;
  uint8_t* host = rig.server.pinned_memory(kSize);
  CUdeviceptr device = rig.server.device_memory(kSize);
  std::memset(host, 1, kSize);
  ASSERT_EQ(rig.server.cu.cuMemsetD8(device, 0, kSize), CUDA_SUCCESS);
  rig.synchronize();
  ASSERT_EQ(rig.server.cu.cuCtxSynchronize(), CUDA_SUCCESS);
  const double before = braid::test::cpu_seconds(CLOCK_PROCESS_CPUTIME_ID);
  rig.launch_everywhere(rig.args(reinterpret_cast<uint64_t>(host), device, kSize, 65536, 4), 4);
  rig.synchronize();
  const double took = braid::test::cpu_seconds(CLOCK_PROCESS_CPUTIME_ID) - before;
  EXPECT_EQ(rig.read_counters().done, 16384u);
  RecordProperty("seconds", std::to_string(took));
  EXPECT_LT(took, 20.0) << "expected about a second";
}

// GPU 1 pulls into memory that it may not touch; `elsewhere`: what GPU 0's context says then, and a
// context that is made anew.
void pull_without_peer_access(const std::string& faults, CUresult elsewhere) {
  Rig rig("h200x4", 2, 0, faults);
  uint8_t* host = rig.server.pinned_memory(1 << 20);
  CUdeviceptr device = rig.server.device_memory(1 << 20);
  const PullArgs args = rig.args(reinterpret_cast<uint64_t>(host), device, 1 << 20, 65536, 1);
  rig.server.use(1);
  ASSERT_EQ(rig.launch(args, 1, 1, 1), CUDA_SUCCESS);
  EXPECT_EQ(rig.server.cu.cuStreamSynchronize(rig.streams[1]), CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_EQ(rig.server.cu.cuCtxSynchronize(), CUDA_ERROR_ILLEGAL_ADDRESS) << "not sticky";
  CUdeviceptr more = 0;
  EXPECT_EQ(rig.server.cu.cuMemAlloc(&more, 16), CUDA_ERROR_ILLEGAL_ADDRESS);
  rig.server.use(0);
  EXPECT_EQ(rig.server.cu.cuMemAlloc(&more, 16), elsewhere);
  CUcontext made = nullptr;
  auto* create = rig.server.symbol<CUresult (*)(CUcontext*, unsigned, CUdevice)>("cuCtxCreate_v2");
  EXPECT_EQ(create(&made, 0, 1), elsewhere);
}

TEST(Pull, RelaysWithoutPeerAccessFault) {
  pull_without_peer_access("", CUDA_ERROR_ILLEGAL_ADDRESS);
}

TEST(Pull, AFaultStaysInItsContextWhenToldSo) {
  pull_without_peer_access(kFaultsStay, CUDA_SUCCESS);
}

TEST(Pull, RelaysYieldToDirectWorkOfTheirOwnGpu) {
  Rig rig("h200x4", 2, 0);
  rig.enable_peers();
  constexpr size_t kSize = 32u << 20;
  uint8_t* host = rig.server.pinned_memory(kSize);
  CUdeviceptr device = rig.server.device_memory(kSize);
  // GPU 1 says that it has direct work, and goes on saying so.
  rig.server.use(1);
  uint32_t one = 1;
  ASSERT_EQ(rig.server.cu.cuMemcpyHtoD(rig.occupancies[1] + 4 * cuda::kBulkDirectRank, &one, 4),
            CUDA_SUCCESS);
  const PullArgs args = rig.args(reinterpret_cast<uint64_t>(host), device, kSize, 65536, 4);
  rig.launch_everywhere(args, 4);
  rig.synchronize();
  EXPECT_EQ(rig.report->slices[0], args.slice_count);
  EXPECT_EQ(rig.report->slices[1], 0u);
  EXPECT_EQ(rig.report->generation, args.generation);
}

TEST(Pull, ABusyRelayDoesNotHoldTheTransferBack) {
  Rig rig("h200x4", 2, 0, R"({"busy": [{"gpu": 1, "from_us": 0, "to_us": 1000000}]})");
  rig.enable_peers();
  constexpr size_t kSize = 16u << 20;
  uint8_t* host = rig.server.pinned_memory(kSize);
  CUdeviceptr device = rig.server.device_memory(kSize);
  CUstream user = rig.server.stream();
  const PullArgs args = rig.args(reinterpret_cast<uint64_t>(host), device, kSize, 65536, 4);
  CUevent start = rig.server.recorded(user);
  rig.launch_everywhere(args, 4);
  ASSERT_EQ(rig.server.cu.cuStreamWaitValue32(user, rig.counters + offsetof(TransferCounters, done),
                                              args.slice_count, CU_STREAM_WAIT_VALUE_GEQ),
            CUDA_SUCCESS);
  CUevent end = rig.server.recorded(user);
  ASSERT_EQ(rig.server.cu.cuStreamSynchronize(user), CUDA_SUCCESS);
  EXPECT_LT(rig.server.elapsed_us(start, end), 1000);
  EXPECT_NE(rig.report->generation, args.generation);  // the relay has not left yet
  rig.synchronize();
  EXPECT_EQ(rig.report->generation, args.generation);
}

// Both say that the GPU is shared, which they measure by the time that a slice takes.
TEST(Pull, ARelayLeavesWhatItHasNotTakenOnlyToADirectPath) {
  Rig rig("h200x4", 2, 0);
  rig.enable_peers();
  constexpr uint32_t kSlice = 64u << 20, kSlices = 8;
  const uint8_t* host = rig.server.pinned_memory(size_t{kSlices} * kSlice);
  auto* shared = reinterpret_cast<uint32_t*>(rig.server.pinned_memory(4096));
  const CUdeviceptr device = rig.server.device_memory(size_t{kSlices} * kSlice);
  uint32_t done = 0;
  for (const bool stays : {false, true}) {
    PullArgs args =
        rig.args(reinterpret_cast<uint64_t>(host), device, uint64_t{kSlices} * kSlice, kSlice, 1);
    args.total_blocks = 1;  // the relay's
    args.shared = reinterpret_cast<uint64_t>(shared);
    args.relays_stay = stays ? 1 : 0;
    *shared = 0;
    ASSERT_EQ(rig.launch(args, 1, 1, 1), CUDA_SUCCESS);
    rig.synchronize();
    EXPECT_EQ(*shared, 1u);
    EXPECT_EQ(rig.report->generation, args.generation);
    const uint32_t landed = rig.read_counters().done - done;
    done += landed;
    EXPECT_EQ(landed == kSlices, stays) << landed;
  }
}

// A link's arbiter sees one requester, however many blocks there are.
TEST(Pull, AKernelSharesTheLinkEquallyWithACopyEngine) {
  constexpr size_t kSize = 64u << 20;
  std::vector<double> beside_us;
  for (const uint32_t blocks : {2u, 4u, 16u}) {
    beside_us.push_back(
        std::stod(in_child([&] {
                    Rig rig("h200x4", 1, 0);
                    const auto host = reinterpret_cast<uint64_t>(rig.server.pinned_memory(kSize));
                    const CUdeviceptr device = rig.server.device_memory(2 * kSize);
                    CUstream copying = rig.server.stream();
                    const PullArgs args = rig.args(host, device, kSize, 256u << 10, blocks);
                    CUevent start = rig.server.recorded(copying);
                    EXPECT_EQ(rig.launch(args, 0, 0, blocks), CUDA_SUCCESS);
                    EXPECT_EQ(rig.server.cu.cuMemcpyHtoDAsync(
                                  device + kSize, reinterpret_cast<void*>(host), kSize, copying),
                              CUDA_SUCCESS);
                    CUevent end = rig.server.recorded(copying);
                    rig.synchronize();
                    EXPECT_EQ(rig.server.cu.cuStreamSynchronize(copying), CUDA_SUCCESS);
                    return std::to_string(rig.server.elapsed_us(start, end));
                  }).output));
  }
  const double alone_us = kSize / 55.3e3;  // h200x4's link
  for (const double us : beside_us) {
    EXPECT_GT(us, 1.85 * alone_us);
    EXPECT_LT(us, 2.05 * alone_us);
  }
}

// Two kernels wait for room on a full GPU: that of the more urgent stream starts first.
TEST(Pull, BlocksOfAHigherPriorityStreamStartFirst) {
  Rig rig("h200x4", 1, 0);
  constexpr size_t kSize = 32u << 20;
  const auto host = reinterpret_cast<uint64_t>(rig.server.pinned_memory(kSize));
  const CUdeviceptr device = rig.server.device_memory(kSize);
  constexpr uint32_t kFull = 132 * 4;  // blocks of 512 threads that an H200 holds
  std::vector<CUevent> ends;
  CUstream plain = rig.server.stream();
  CUstream urgent = nullptr;
  ASSERT_EQ(rig.server.cu.cuStreamCreateWithPriority(&urgent, CU_STREAM_NON_BLOCKING, -5),
            CUDA_SUCCESS);
  // Each has a transfer of its own.
  for (CUstream stream : {rig.streams[0], plain, urgent}) {
    rig.counters = rig.server.device_memory(sizeof(TransferCounters));
    ASSERT_EQ(rig.server.cu.cuMemsetD8(rig.counters, 0, sizeof(TransferCounters)), CUDA_SUCCESS);
    rig.report =
        reinterpret_cast<TransferReport*>(rig.server.pinned_memory(sizeof(TransferReport)));
    rig.streams[0] = stream;
    EXPECT_EQ(rig.launch(rig.args(host, device, kSize, 32u << 10, kFull), 0, 0, kFull),
              CUDA_SUCCESS);
    ends.push_back(rig.server.recorded(stream));
  }
  ASSERT_EQ(rig.server.cu.cuCtxSynchronize(), CUDA_SUCCESS);
  EXPECT_GT(rig.server.elapsed_us(ends[2], ends[1]), 0);
  EXPECT_GT(rig.server.elapsed_us(ends[0], ends[2]), 0);
}

TEST(Pull, WrongLaunchesAreRefused) {
  Rig rig("h200x4", 2, 0);
  CUmodule module = nullptr;
  CUfunction function = nullptr;
  rig.server.use(0);
  ASSERT_EQ(rig.server.cu.cuModuleLoadData(&module, "anything"), CUDA_SUCCESS);
  EXPECT_EQ(rig.server.cu.cuModuleGetFunction(&function, module, "no_such_kernel"),
            CUDA_ERROR_NOT_FOUND);
  PullArgs args{};
  void* params[] = {&args};
  const auto launch = [&](CUfunction which, unsigned blocks, unsigned threads, CUstream stream,
                          void** with) {
    return rig.server.cu.cuLaunchKernel(which, blocks, 1, 1, threads, 1, 1, 0, stream, with,
                                        nullptr);
  };
  EXPECT_EQ(launch(nullptr, 1, 32, rig.streams[0], params), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(launch(rig.functions[0], 0, 32, rig.streams[0], params), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(launch(rig.functions[0], 1, 2048, rig.streams[0], params), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(launch(rig.functions[0], 1, 32, rig.streams[0], nullptr), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(launch(rig.functions[0], 1, 32, rig.streams[1], params), CUDA_ERROR_INVALID_HANDLE);
}

}  // namespace
}  // namespace braid::emulator_test
