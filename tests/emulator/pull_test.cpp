// Launches of braid_pull: every byte arrives once, whoever carries it; relays yield; the ticket is
// left as the contract in cuda/kernels/pull.h says.
#include <chrono>
#include <cstddef>
#include <cstring>

#include "cuda/kernels/image.h"
#include "cuda/kernels/pull.h"
#include "fixture.h"

namespace braid::emulator_test {
namespace {

using cuda::PullArgs;
using cuda::TicketCounters;
using cuda::TicketReport;

constexpr unsigned kThreads = 512;

// Streams, kernels and words on every GPU, and one ticket on GPU `target`.
class Rig {
 public:
  Rig(const std::string& profile, int gpus, int target_gpu, const std::string& faults = "")
      : server(profile, faults), count(gpus), target(target_gpu) {
    for (int gpu = 0; gpu < count; ++gpu) {
      contexts.push_back(server.use(gpu));
      streams.push_back(server.stream());
      CUmodule module = nullptr;
      EXPECT_EQ(server.cu.cuModuleLoadData(&module, cuda::pull_kernel_image()), CUDA_SUCCESS);
      CUfunction function = nullptr;
      EXPECT_EQ(server.cu.cuModuleGetFunction(&function, module, cuda::kVectorKernelName),
                CUDA_SUCCESS);
      functions.push_back(function);
      boards.push_back(server.device_memory(sizeof(cuda::LinkBoard)));
      EXPECT_EQ(server.cu.cuMemsetD8(boards.back(), 0, sizeof(cuda::LinkBoard)), CUDA_SUCCESS);
    }
    server.use(target);
    counters = server.device_memory(sizeof(TicketCounters));
    EXPECT_EQ(server.cu.cuMemsetD8(counters, 0, sizeof(TicketCounters)), CUDA_SUCCESS);
    report = reinterpret_cast<TicketReport*>(server.pinned_memory(sizeof(TicketReport)));
    EXPECT_EQ(server.cu.cuCtxSynchronize(), CUDA_SUCCESS);
  }

  void enable_peers() {
    for (int gpu = 0; gpu < count; ++gpu) {
      if (gpu == target) continue;
      server.use(gpu);
      EXPECT_EQ(server.cu.cuCtxEnablePeerAccess(contexts[target], 0), CUDA_SUCCESS);
    }
    server.use(target);
  }

  PullArgs args(uint64_t source, uint64_t destination, uint64_t size, uint32_t slice_bytes,
                uint32_t blocks) const {
    PullArgs made{};
    made.source = source;
    made.destination = destination;
    made.size_bytes = size;
    made.counters = counters;
    made.report = reinterpret_cast<uint64_t>(report);
    made.slice_bytes = slice_bytes;
    made.slice_count = static_cast<uint32_t>(cuda::slice_count_of(destination, size, slice_bytes));
    made.total_blocks = blocks * static_cast<uint32_t>(count);
    made.path_count = static_cast<uint32_t>(count);
    made.generation = ++generations;
    made.relay_slot = cuda::kNoRelaySlot;
    return made;
  }

  CUresult launch(PullArgs args, int gpu, uint32_t path, uint32_t blocks) {
    args.path = path;
    args.board = boards[gpu];
    args.rank = path == 0 ? cuda::kBulkDirectRank : cuda::kBulkRelayRank;
    void* params[] = {&args};
    return server.cu.cuLaunchKernel(functions[gpu], blocks, 1, 1, kThreads, 1, 1, 0, streams[gpu],
                                    params, nullptr);
  }

  // The direct path first, then every other GPU.
  void launch_everywhere(const PullArgs& args, uint32_t blocks) {
    EXPECT_EQ(launch(args, target, 0, blocks), CUDA_SUCCESS);
    uint32_t path = 1;
    for (int gpu = 0; gpu < count; ++gpu) {
      if (gpu == target) continue;
      EXPECT_EQ(launch(args, gpu, path++, blocks), CUDA_SUCCESS);
    }
  }

  void synchronize() {
    for (int gpu = 0; gpu < count; ++gpu)
      EXPECT_EQ(server.cu.cuStreamSynchronize(streams[gpu]), CUDA_SUCCESS);
  }

  TicketCounters read_counters() {
    TicketCounters words{};
    EXPECT_EQ(server.cu.cuMemcpyDtoH(&words, counters, sizeof(words)), CUDA_SUCCESS);
    return words;
  }

  Emulated server;
  int count;
  int target;
  std::vector<CUcontext> contexts;
  std::vector<CUstream> streams;
  std::vector<CUfunction> functions;
  std::vector<CUdeviceptr> boards;
  CUdeviceptr counters = 0;
  TicketReport* report = nullptr;
  mutable uint32_t generations = 0;
};

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
    const TicketCounters words = rig.read_counters();
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
  const auto start = std::chrono::steady_clock::now();
  rig.launch_everywhere(rig.args(reinterpret_cast<uint64_t>(host), device, kSize, 65536, 4), 4);
  rig.synchronize();
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  EXPECT_EQ(rig.read_counters().done, 16384u);
  RecordProperty("seconds", std::to_string(took.count()));
  EXPECT_LT(took.count(), 20.0) << "expected about a second on an idle machine";
}

TEST(Pull, RelaysWithoutPeerAccessFault) {
  Rig rig("h200x4", 2, 0);
  uint8_t* host = rig.server.pinned_memory(1 << 20);
  CUdeviceptr device = rig.server.device_memory(1 << 20);
  const PullArgs args = rig.args(reinterpret_cast<uint64_t>(host), device, 1 << 20, 65536, 1);
  rig.server.use(1);
  ASSERT_EQ(rig.launch(args, 1, 1, 1), CUDA_SUCCESS);
  EXPECT_EQ(rig.server.cu.cuStreamSynchronize(rig.streams[1]), CUDA_ERROR_ILLEGAL_ADDRESS);
  // Sticky there, and only there.
  EXPECT_EQ(rig.server.cu.cuCtxSynchronize(), CUDA_ERROR_ILLEGAL_ADDRESS);
  CUdeviceptr more = 0;
  EXPECT_EQ(rig.server.cu.cuMemAlloc(&more, 16), CUDA_ERROR_ILLEGAL_ADDRESS);
  rig.server.use(0);
  EXPECT_EQ(rig.server.cu.cuMemAlloc(&more, 16), CUDA_SUCCESS);
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
  ASSERT_EQ(rig.server.cu.cuMemcpyHtoD(rig.boards[1] + 4 * cuda::kBulkDirectRank, &one, 4),
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
  ASSERT_EQ(rig.server.cu.cuStreamWaitValue32(user, rig.counters + offsetof(TicketCounters, done),
                                              args.slice_count, CU_STREAM_WAIT_VALUE_GEQ),
            CUDA_SUCCESS);
  CUevent end = rig.server.recorded(user);
  ASSERT_EQ(rig.server.cu.cuStreamSynchronize(user), CUDA_SUCCESS);
  EXPECT_LT(rig.server.elapsed_us(start, end), 1000);
  EXPECT_NE(rig.report->generation, args.generation);  // the relay has not left yet
  rig.synchronize();
  EXPECT_EQ(rig.report->generation, args.generation);
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
